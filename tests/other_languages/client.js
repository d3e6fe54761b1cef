// Declares, binds, publishes with a confirm, consumes, acks; then a passive declare that must fail.
const amqp = require('amqplib');

async function main(url) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange('js', 'topic', { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true, arguments: { 'x-message-ttl': 60000 } });
  await channel.bindQueue(queue, 'js', 'a.*');
  channel.publish('js', 'a.b', Buffer.from('hello'), { headers: { number: 1, list: [1, 'two'] } });
  await channel.waitForConfirms();
  const message = await new Promise((resolve) => channel.consume(queue, resolve));
  console.log(message.content.toString(), JSON.stringify(message.properties.headers));
  channel.ack(message);
  const other = await connection.createChannel();
  other.on('error', () => {});
  await other.checkQueue('missing').catch((error) => console.log(error.code));
  await connection.close();
}

main(process.argv[2]).catch((error) => { console.error(error); process.exit(1); });
