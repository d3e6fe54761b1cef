"""One client connection as a state machine: bytes in, bytes and engine calls out."""
