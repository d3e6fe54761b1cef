class Sequences:
    count: int
