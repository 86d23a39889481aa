//! Seconds since 1970 as a date.

/// Returns `2026-11-21 23:40 UTC`; `None` beyond the year 9999.
pub(super) fn date(seconds: u64) -> Option<String> {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    if days > 2_932_896 {
        return None;
    }
    // years that begin in March put the leap day at their end; eras of 400 years are all alike
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    Some(format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // by `date -u -d @N`
        let cases = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59 UTC"),
        ];
        for (seconds, text) in cases {
            assert_eq!(date(seconds).as_deref(), Some(text));
        }
        assert_eq!((date(253_402_300_800), date(u64::MAX)), (None, None));
    }
}
