"""Cron expressions from a seed, thick with what clock changes and month ends can get wrong."""

from random import Random

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# Clock changes happen in the small hours: half of all hours are drawn from there.
SMALL_HOURS = (0, 1, 2, 3, 4, 23)


def generate(random: Random) -> str:
    """One expression that both cronsim and Mainspring read alike; one in eight has seconds."""
    fields = [
        _minute(random),
        _hour(random),
        _day_of_month(random),
        _month(random),
        _day_of_week(random),
    ]
    if random.random() < 0.125:
        fields.insert(0, random.choice(("0", "30", "*/20", "15,45", "59")))
    return " ".join(fields)


def _values(random: Random, low: int, high: int) -> str:
    def one() -> str:
        kind = random.randrange(6)
        first = random.randint(low, high - 1)
        last = random.randint(first + 1, high)
        if kind <= 1:
            return str(random.randint(low, high))
        if kind == 2:
            return f"{first}-{last}"
        if kind == 3:
            return f"{first}-{last}/{random.randint(1, 9)}"
        if kind == 4:
            return f"{first}/{random.randint(1, 20)}"
        return f"0{first}" if first < 10 else str(first)

    return ",".join(one() for _ in range(random.choice((1, 1, 1, 2, 3))))


def _minute(random: Random) -> str:
    kind = random.randrange(5)
    if kind == 0:
        return random.choice(("*", "*/5", "*/7", "*/15", "*/20", "*/45"))
    if kind <= 2:
        return random.choice(("0", "1", "15", "29", "30", "31", "45", "59", "0,30"))
    return _values(random, 0, 59)


def _hour(random: Random) -> str:
    kind = random.randrange(6)
    if kind <= 1:
        return random.choice(("*", "*/2", "*/3", "*/4", "*/23"))
    if kind <= 4:
        count = random.choice((1, 1, 1, 2))
        return ",".join(str(random.choice(SMALL_HOURS)) for _ in range(count))
    return _values(random, 0, 23)


def _day_of_month(random: Random) -> str:
    kind = random.randrange(8)
    if kind <= 3:
        return "*"
    if kind == 4:
        return random.choice(("*/2", "*/7", "*/10", "*/31"))
    if kind == 5:
        return random.choice(("L", "LW", "1,L", "15,LW", "28-31"))
    return _values(random, 1, 31)


def _month(random: Random) -> str:
    kind = random.randrange(6)
    if kind <= 3:
        return "*"
    if kind == 4:
        first, last = sorted(random.sample(range(12), 2))
        return random.choice((MONTHS[first], f"{MONTHS[first]}-{MONTHS[last]}", "*/3", "mar,OCT"))
    return _values(random, 1, 12)


def _day_of_week(random: Random) -> str:
    kind = random.randrange(8)
    if kind <= 3:
        return "*"
    if kind == 4:
        return random.choice(("*/2", "*/3", "*/7", "MON-FRI", "SUN,SAT", "5-7"))
    if kind == 5:
        return random.choice(("5L", "0L", "7L", "1#1", "MON#2", "0#3", "7#1", "5#5", "3L,1#1"))
    if kind == 6:
        return random.choice((*WEEKDAYS, "0", "7", "sun", "1-5"))
    return _values(random, 0, 7)


def mutate(random: Random, expression: str) -> str:
    """An expression with one to three characters dropped, doubled or replaced."""
    characters = list(expression)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(characters))
        kind = random.randrange(3)
        if kind == 0 and len(characters) > 1:
            del characters[place]
        elif kind == 1:
            characters.insert(place, characters[place])
        else:
            characters[place] = random.choice("0123456789*/,-#LW ?x")
    return "".join(characters)
