#!/usr/bin/env python3
"""Writes vectors.txt: when cron schedules fire, found by brute force with Python's own time zones.

    PYTHONTZPATH=FOLDER ./generate.py > vectors.txt

Walks through every minute of UTC, asks zoneinfo for the local time, and applies the rules of docs/SCHEDULES.md
word for word. It shares neither code nor method with the crate, which calculates with stretches of equal offset.
The crate's test reads the result, so it needs no Python. PYTHONTZPATH is where the time zone database is, such as
the folder zoneinfo of the package tzdata from PyPI; without it, that of the machine is used.

Lines of the result:
    zone NAME FIRST-YEAR YEAR-AFTER-THE-LAST
    change UTC-TIME OFFSET-BEFORE OFFSET-AFTER     offsets in minutes
    EXPRESSION: MINUTE MINUTE ...                  all times near the change, in minutes from it
    total COUNT HASH EXPRESSION                    all times of the years
"""

import pathlib
import sys
import zoneinfo
from datetime import datetime, timezone

YEARS = (2024, 2034)
ZONES = [
    ("Africa/Casablanca", *YEARS),
    ("America/New_York", *YEARS),
    ("America/Santiago", *YEARS),
    ("America/Sao_Paulo", *YEARS),
    ("Antarctica/Troll", *YEARS),
    ("Asia/Kolkata", *YEARS),
    ("Asia/Tehran", *YEARS),
    ("Australia/Lord_Howe", *YEARS),
    ("Europe/Berlin", *YEARS),
    ("Europe/Dublin", *YEARS),
    ("Pacific/Chatham", *YEARS),
    # Years with changes for a few weeks, changes at midnight, and a day that was left out.
    ("Africa/Casablanca", 2014, 2024),
    ("America/Sao_Paulo", 2014, 2020),
    ("Asia/Tehran", 2019, 2023),
    ("Pacific/Apia", 2011, 2013),
]
EXPRESSIONS = [
    "30 2 * * *",
    "0 0 * * *",
    "0 3 * * *",
    "*/15 2 * * *",
    "*/20 0-3 * * *",
    "0 */2 * * *",
    "10 1-23 * * *",
    "15 1,2,3 * * SUN",
    "59 23 L * *",
    "0 1 1-7 * SUN",
    "45 0 */2 * SUN",
    "30 2 29-31 3,10 *",
    "0 * * * *",
    "*/15 * * * *",
    "7 0-23 * * *",
    "*/20 * * * SUN",
]
# How far from a change times are listed, in minutes.
NEAR = 36 * 60
NEAR_FOR_EVERY_HOUR = 4 * 60
NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
DAY = 24 * 60


def values(field, first, last):
    """The numbers that a field matches, without L."""
    found = set()
    for element in field.split(","):
        if element == "L":
            continue
        text, _, step = element.partition("/")
        start, _, end = text.partition("-")
        numbers = [NAMES.index(part) if part in NAMES else part for part in (start, end)]
        if text == "*":
            numbers = [first, last]
        elif not end:
            numbers[1] = numbers[0]
        found.update(range(int(numbers[0]), int(numbers[1]) + 1, int(step or 1)))
    return found


class Schedule:
    def __init__(self, text):
        minute, hour, day, month, weekday = text.split()
        self.text = text
        self.minutes = values(minute, 0, 59)
        self.hours = values(hour, 0, 23)
        self.days = values(day, 1, 31)
        self.is_last_day = "L" in day
        self.months = values(month, 1, 12)
        self.weekdays = {number % 7 for number in values(weekday, 0, 6)}
        self.needs_both = day.startswith("*") or weekday.startswith("*")
        self.is_of_every_hour = len(self.hours) == 24
        self.known_days = {}

    def matches_day(self, number):
        """Whether the day with this number since the year 1 matches."""
        if number not in self.known_days:
            date = datetime.fromordinal(number)
            is_last = datetime.fromordinal(number + 1).month != date.month
            day = date.day in self.days or (self.is_last_day and is_last)
            weekday = date.isoweekday() % 7 in self.weekdays
            matches = (day and weekday) if self.needs_both else (day or weekday)
            self.known_days[number] = matches and date.month in self.months
        return self.known_days[number]


def walk(zone, first, last):
    """The schedules' times between two minutes of UTC, and the changes of the zone's offset."""
    schedules = [Schedule(text) for text in EXPRESSIONS]
    by_time = [
        [s for s in schedules if time // 60 in s.hours and time % 60 in s.minutes] for time in range(DAY)
    ]
    times = {schedule.text: [] for schedule in schedules}
    changes = []
    shown = offset = None
    for minute in range(first, last):
        local = datetime.fromtimestamp(minute * 60, zone)
        now = local.toordinal() * DAY + local.hour * 60 + local.minute
        if offset is not None and now - minute != offset:
            changes.append((minute, offset, now - minute))
        offset = now - minute
        # The clock has shown all local times up to the number `shown`.
        shown = now - 1 if shown is None else shown
        for schedule in by_time[now % DAY]:
            if schedule.is_of_every_hour and schedule.matches_day(now // DAY):
                times[schedule.text].append(minute)
        for passed in range(shown + 1, now + 1):
            for schedule in by_time[passed % DAY]:
                fired = times[schedule.text]
                if schedule.is_of_every_hour or fired[-1:] == [minute]:
                    continue
                if schedule.matches_day(passed // DAY):
                    fired.append(minute)
        shown = max(shown, now)
    return times, changes


def hash_of(times):
    result = 0
    for time in times:
        result = (result * 1_000_003 + time) % 2**32
    return result


def main():
    epoch = datetime.fromtimestamp(0, timezone.utc).toordinal() * DAY
    version = "of an unknown version"
    for folder in zoneinfo.TZPATH:
        for name in ("tzdata.zi", "../__init__.py"):
            file = pathlib.Path(folder) / name
            if version == "of an unknown version" and file.exists():
                mark = "# version " if name == "tzdata.zi" else "IANA_VERSION = "
                lines = [line for line in file.read_text().splitlines() if line.startswith(mark)]
                version = lines[0].removeprefix(mark).strip('"') if lines else version
    print(f"# Written by generate.py with the time zone database {version}.")
    for name, start, end in ZONES:
        print("at work on", name, file=sys.stderr)
        bounds = [int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) // 60 for year in (start, end)]
        times, changes = walk(zoneinfo.ZoneInfo(name), *bounds)
        print(f"zone {name} {start} {end}")
        for change, before, after in changes:
            written = datetime.fromtimestamp(change * 60, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
            print(f"change {written} {before - epoch} {after - epoch}")
            for text, all_times in times.items():
                near = NEAR_FOR_EVERY_HOUR if Schedule(text).is_of_every_hour else NEAR
                listed = [str(time - change) for time in all_times if abs(time - change) <= near]
                print(f"{text}: {' '.join(listed)}".rstrip())
        for text, all_times in times.items():
            print(f"total {len(all_times)} {hash_of(all_times)} {text}")


main()
