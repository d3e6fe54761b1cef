# Publishes with a confirm, takes the message, puts it back, takes it again.
require 'bunny'

connection = Bunny.new(ARGV[0])
connection.start
channel = connection.create_channel
channel.confirm_select
queue = channel.queue('ruby', auto_delete: true)
channel.default_exchange.publish('hello', routing_key: queue.name, headers: { 'a' => 1 })
channel.wait_for_confirms or abort('not confirmed')
delivery, _, body = queue.pop(manual_ack: true)
channel.nack(delivery.delivery_tag, false, true)
again, properties, = queue.pop(manual_ack: true)
puts "#{body} #{delivery.redelivered?} #{again.redelivered?} #{properties.headers}"
channel.ack(again.delivery_tag)
connection.close
