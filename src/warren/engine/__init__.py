"""The composer: joins sessions, routing and queues into a broker."""
