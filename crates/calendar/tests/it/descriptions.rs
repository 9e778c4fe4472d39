//! Schedules in English.

use std::time::Duration;

use kvqueue_calendar::Calendar;

use crate::support::cron;

#[test]
fn expressions_are_described() {
    for (expression, description) in [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("30 */5 * * * *", "at second 30 of every 5 minutes"),
        ("@hourly", "at minute 0 of every hour"),
        ("0 */2 * * *", "at minute 0 of every 2 hours"),
        ("0 3 * * *", "at 03:00 every day"),
        ("15 30 3 * * *", "at 03:30:15 every day"),
        ("0 9,13,17 * * MON-FRI", "at 09:00, 13:00 and 17:00 on Monday to Friday"),
        ("*/15 9-17 * * 1,3", "every 15 minutes of hours 9 to 17 on Monday and Wednesday"),
        ("* 2 * * *", "every minute of hour 2 every day"),
        ("@weekly", "at 00:00 on Sunday"),
        ("0 0 * * SAT,SUN", "at 00:00 on Saturday and Sunday"),
        ("@monthly", "at 00:00 on day 1 of the month"),
        ("@yearly", "at 00:00 on day 1 of the month in January"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        (
            "0 0 1,15,L JAN-MAR,12 *",
            "at 00:00 on days 1 and 15 and the last day of the month in January to March and December",
        ),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month and on Friday"),
        (
            "0 0 */10 * MON,TUE",
            "at 00:00 on days 1, 11, 21 and 31 of the month, if that is Monday or Tuesday",
        ),
        ("0 0 1-31 * FRI", "at 00:00 every day"),
        ("* * 1 * *", "every minute on day 1 of the month"),
    ] {
        assert_eq!(cron(expression, "UTC").description(), format!("{description}, UTC"), "{expression}");
    }
    assert_eq!(cron("0 3 * * *", "Europe/Berlin").description(), "at 03:00 every day, Europe/Berlin time");
}

#[test]
fn periods_are_described() {
    let every = |seconds| Calendar::every(Duration::from_secs(seconds)).unwrap().description();
    assert_eq!(every(300), "every 5m");
    assert_eq!(every(5_400), "every 1h 30m");
}
