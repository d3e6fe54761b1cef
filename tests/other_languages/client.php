<?php
// Publishes with a confirm to a queue with a dead-letter target, rejects, and reads the history.
require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

$url = parse_url($argv[1]);
$connection = new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass']);
$channel = $connection->channel();
$arguments = ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'php.dead'];
$channel->queue_declare('php', false, true, false, false, false, new AMQPTable($arguments));
$channel->queue_declare('php.dead');
$channel->confirm_select();
$message = new AMQPMessage('hello', ['delivery_mode' => 2]);
$channel->basic_publish($message, '', 'php');
$channel->wait_for_pending_acks(5);
$channel->basic_get('php')->reject(false);
do {
    $dead = $channel->basic_get('php.dead');
} while ($dead === null);
$death = $dead->get('application_headers')->getNativeData()['x-death'][0];
echo $dead->getBody(), ' ', $death['reason'], ' ', $death['count'], "\n";
$channel->close();
$connection->close();
