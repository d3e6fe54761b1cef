"""An AMQP client: what shovels and the load of `warrenctl bench` speak to brokers with."""
