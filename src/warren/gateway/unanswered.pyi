class Unanswered:
    count: int
    answered: int
    size: int
