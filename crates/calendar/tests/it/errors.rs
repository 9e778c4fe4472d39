//! Every message about a wrong expression: it names the field, what is wrong, and how to write it.

use kvqueue_calendar::{Calendar, CalendarError, LONGEST_EXPRESSION};

fn error(expression: &str) -> String {
    match Calendar::cron(expression, "UTC") {
        Err(error) => error.to_string(),
        Ok(calendar) => panic!("{expression:?} was accepted: {}", calendar.description()),
    }
}

#[test]
fn wrong_elements_name_their_field_and_the_fix() {
    for (expression, text, field, problem_and_fix) in [
        ("60 * * * *", "60", "minute", "60 is out of range; write 0 to 59"),
        ("* 24 * * *", "24", "hour", "24 is out of range; write 0 to 23"),
        ("* * 0 * *", "0", "day", "0 is out of range; write 1 to 31"),
        ("* * 32 * *", "32", "day", "32 is out of range; write 1 to 31"),
        ("* * * 13 *", "13", "month", "13 is out of range; write 1 to 12 or JAN to DEC"),
        ("* * * * 8", "8", "weekday", "8 is out of range; write 0 to 7 or SUN to SAT"),
        ("60 * * * * *", "60", "second", "60 is out of range; write 0 to 59"),
        ("999 * * * *", "999", "minute", "999 is out of range; write 0 to 59"),
        ("x * * * *", "x", "minute", "\"x\" is not a number; write 0 to 59"),
        ("-5 * * * *", "-5", "minute", "\"-5\" is not a number; write 0 to 59"),
        ("+5 * * * *", "+5", "minute", "\"+5\" is not a number; write 0 to 59"),
        ("1.5 * * * *", "1.5", "minute", "\"1.5\" is not a number; write 0 to 59"),
        ("* * * JANUARY *", "JANUARY", "month", "\"JANUARY\" is not a name; write JAN"),
        ("* * * * monday", "monday", "weekday", "\"monday\" is not a name; write MON"),
        ("* * * * Mo", "Mo", "weekday", "\"Mo\" is neither a number nor a name; write 0 to 7 or SUN to SAT"),
        ("1,,2 * * * *", "", "minute", "a value is missing; write 0 to 59"),
        ("5- * * * *", "5-", "minute", "a value is missing; write 0 to 59"),
        ("/5 * * * *", "/5", "minute", "a value is missing; write 0 to 59"),
        ("* 22-6 * * *", "22-6", "hour", "the range ends before it begins; write \"22-23,0-6\""),
        ("* * * NOV-FEB *", "NOV-FEB", "month", "the range ends before it begins; write \"11-12,1-2\""),
        ("* * * * FRI-MON", "FRI-MON", "weekday", "the range ends before it begins; write \"5-7,0-1\""),
        ("*/0 * * * *", "*/0", "minute", "the step is not a number from 1; write it as in \"*/5\""),
        ("*/ * * * *", "*/", "minute", "the step is not a number from 1; write it as in \"*/5\""),
        ("*/5/5 * * * *", "*/5/5", "minute", "the step is not a number from 1; write it as in \"*/5\""),
        (
            "*/90 * * * *",
            "*/90",
            "minute",
            "with this step, only 0 would match; write 0 alone, or a smaller step; longer periods are \
             written as in every = \"90m\"",
        ),
        (
            "5-10/6 * * * *",
            "5-10/6",
            "minute",
            "with this step, only 5 would match; write 5 alone, or a smaller step; longer periods are \
             written as in every = \"90m\"",
        ),
        (
            "* * * * 7/2",
            "7/2",
            "weekday",
            "with this step, only 7 would match; write 7 alone, or a smaller step",
        ),
        ("? * * * *", "?", "minute", "? stands alone in the fields day and weekday; write * instead"),
        ("* * ?,1 * *", "?", "day", "? stands alone in the fields day and weekday; write * instead"),
        (
            "* * L-3 * *",
            "L-3",
            "day",
            "L is the last day of the month; write L alone, or in a list such as \"1,L\"",
        ),
        ("* * 15W * *", "15W", "day", "L, W and # with a day are not supported; write 1 to 31"),
        (
            "* * * * 5L",
            "5L",
            "weekday",
            "L, W and # with a day are not supported; write 0 to 7 or SUN to SAT",
        ),
        (
            "* * * * 1#2",
            "1#2",
            "weekday",
            "L, W and # with a day are not supported; write 0 to 7 or SUN to SAT",
        ),
        ("* L * * *", "L", "hour", "\"L\" is not a number; write 0 to 23"),
        ("é * * * *", "é", "minute", "\"é\" is not a number; write 0 to 59"),
    ] {
        let expected =
            format!("cannot read {text:?} in the field {field} of the cron expression: {problem_and_fix}");
        assert_eq!(error(expression), expected, "{expression}");
    }
}

#[test]
fn wrong_number_of_fields_is_refused_with_both_forms() {
    for (expression, found) in [("", 0), ("  ", 0), ("* * * *", 4), ("0 0 3 * * * 2026", 7)] {
        let expected = format!(
            "the cron expression {expression:?} has {found} fields; write 5 (minute hour day month weekday), such as \
             \"0 3 * * *\", or 6 (second minute hour day month weekday), such as \"30 0 3 * * *\""
        );
        assert_eq!(error(expression), expected);
    }
}

#[test]
fn unknown_name_of_an_expression_is_refused_with_the_nearest_one() {
    let all = "write @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or five fields";
    for (name, fix) in [
        ("@dayly", "did you mean @daily?"),
        ("@Houry", "did you mean @hourly?"),
        ("@reboot", "a schedule does not depend on when a program starts"),
        ("@every 5m", "write a period as in every = \"5m\""),
        ("@", all),
        ("@fortnightly", all),
    ] {
        assert_eq!(error(name), format!("{name:?} is not a name of a cron expression; {fix}"));
    }
}

#[test]
fn expression_that_never_fires_is_refused() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 2 ?", "0 0 30 2 */2"] {
        let expected = format!(
            "the cron expression {expression:?} never matches, because no month that it names has such a day; write \
             a day that exists, or L for the last day of the month"
        );
        assert_eq!(error(expression), expected);
    }
    // Either field is enough here.
    Calendar::cron("0 0 30 2 1", "UTC").unwrap();
    Calendar::cron("0 0 30,L 2 *", "UTC").unwrap();
}

#[test]
fn too_long_expression_is_refused() {
    let expression = |length: usize| format!("{}1 * * * *", "1,".repeat((length - 9) / 2));
    let longest = expression(LONGEST_EXPRESSION - 1);
    assert_eq!(longest.len(), LONGEST_EXPRESSION - 1);
    Calendar::cron(&longest, "UTC").unwrap();
    let length = LONGEST_EXPRESSION + 1;
    assert_eq!(Calendar::cron(&expression(length), "UTC"), Err(CalendarError::TooLong { length }));
}
