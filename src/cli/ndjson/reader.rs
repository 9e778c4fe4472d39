//! Reading an export line by line.

use std::io::{self, BufRead};

use kvqueue_queue::StoredItem;

use super::{Header, MAX_LINE, Tally, frame::End, record};
use crate::cli::line_reader::{Line, next_line};

/// An export cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Damage {
    /// A line is not what it has to be.
    #[error("line {line} of {name}: {problem}")]
    Line { name: String, line: u64, problem: String },
    /// The last line is missing.
    #[error("{name} ends at line {line}, and the line that ends an export is missing: it was cut off")]
    Cut { name: String, line: u64 },
    /// The input fails.
    #[error("cannot read {name}: {error}")]
    Input { name: String, error: io::Error },
}

impl Damage {
    /// Damaged data. A failure to read the input is an error of another kind.
    pub(in crate::cli) fn of_the_data(self) -> Result<Self, Self> {
        if matches!(self, Self::Input { .. }) { Err(self) } else { Ok(self) }
    }
}

/// An item, and its line.
pub(in crate::cli) struct Record {
    pub(in crate::cli) item: StoredItem,
    /// The line as it was, without its newline.
    pub(in crate::cli) text: Vec<u8>,
}

/// An export that is read.
pub(in crate::cli) struct Reader<R> {
    from: R,
    /// The input's name in messages.
    name: String,
    line: u64,
    tally: Tally,
    over: bool,
    pub(in crate::cli) header: Header,
    /// The header's line as it was.
    pub(in crate::cli) header_text: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    pub(in crate::cli) fn new(from: R, name: String) -> Result<Self, Damage> {
        let header = Header { kind: String::new() };
        let mut reader =
            Self { from, name, line: 0, tally: Tally::new(), over: false, header, header_text: Vec::new() };
        let Some(text) = reader.line()? else {
            return Err(Damage::Cut { name: reader.name, line: 0 });
        };
        reader.header = Header::parse(&text).map_err(|problem| reader.wrong(problem))?;
        reader.tally.add_line(&text);
        reader.header_text = text;
        Ok(reader)
    }

    /// The next item; `None` behind the last of a whole export.
    pub(in crate::cli) fn next(&mut self) -> Result<Option<Record>, Damage> {
        if self.over {
            return Ok(None);
        }
        let Some(text) = self.line()? else {
            return Err(Damage::Cut { name: self.name.clone(), line: self.line });
        };
        if let Some(end) = End::parse(&text) {
            self.tally.check(&end).map_err(|problem| self.wrong(problem))?;
            if self.line()?.is_some() {
                let problem = "it follows the line that ends the export; import several one by one";
                return Err(self.wrong(problem.to_owned()));
            }
            self.over = true;
            return Ok(None);
        }
        let item = record::parse(&text).map_err(|problem| self.wrong(problem))?;
        self.tally.add_item(&text);
        Ok(Some(Record { item, text }))
    }

    /// The error in the line that was read last.
    pub(in crate::cli) fn wrong(&self, problem: String) -> Damage {
        Damage::Line { name: self.name.clone(), line: self.line, problem }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, Damage> {
        match next_line(&mut self.from, MAX_LINE) {
            Ok(None) => Ok(None),
            Ok(Some(line)) => {
                self.line += 1;
                match line {
                    Line::Whole(text) => Ok(Some(text)),
                    Line::TooLong(bytes) => {
                        Err(self
                            .wrong(format!("it has {bytes} bytes, and no item takes more than {MAX_LINE}")))
                    }
                }
            }
            Err(error) => Err(Damage::Input { name: self.name.clone(), error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An export of these items.
    fn export(payloads: &[&str]) -> String {
        let (header, mut tally) = ("{\"kvqueue_export\":1,\"kind\":\"fifo\"}", Tally::new());
        tally.add_line(header.as_bytes());
        let mut text = format!("{header}\n");
        for payload in payloads {
            let line = format!("{{\"state\":\"ready\",\"payload\":\"{payload}\"}}");
            tally.add_item(line.as_bytes());
            text += &format!("{line}\n");
        }
        text + &tally.end() + "\n"
    }

    fn read(text: &str) -> Result<Vec<String>, Damage> {
        let mut reader = Reader::new(text.as_bytes(), "the export".to_owned())?;
        let mut payloads = Vec::new();
        while let Some(record) = reader.next()? {
            payloads.push(String::from_utf8(record.item.payload.to_vec()).unwrap());
        }
        assert!(reader.next()?.is_none());
        Ok(payloads)
    }

    fn damage(text: &str) -> String {
        read(text).expect_err("it is damaged").to_string()
    }

    #[test]
    fn a_whole_export_is_read() {
        assert_eq!(read(&export(&[])).unwrap(), Vec::<String>::new());
        assert_eq!(read(&export(&["a", "", "b"])).unwrap(), ["a", "", "b"]);
        assert_eq!(read(export(&["a"]).trim_end()).unwrap(), ["a"]);
    }

    #[test]
    fn damage_in_an_export_is_reported_with_its_line() {
        let whole = export(&["a", "b"]);
        let lines: Vec<_> = whole.lines().collect();
        assert!(damage(&lines[1..].join("\n")).starts_with("line 1 of the export: this is no export"));
        let cut = "the export ends at line 3, and the line that ends an export is missing: it was cut off";
        assert_eq!(damage(&lines[..3].join("\n")), cut);
        assert_eq!(
            damage(&whole.replace("\"b\"", "\"c\"")),
            "line 4 of the export: the checksum here is not that of the lines before it: one of them was changed"
        );
        assert!(damage(&whole.replace("\"b\"", "b")).starts_with("line 3 of the export: expected value"));
        assert!(
            damage(&[lines[0], lines[1], lines[3]].join("\n"))
                .starts_with("line 3 of the export: this says that there are 2 items, and there are 1")
        );
        assert!(damage(&format!("{whole}{whole}")).starts_with("line 5 of the export: it follows the line"));
        assert_eq!(
            damage(""),
            "the export ends at line 0, and the line that ends an export is missing: it was cut off"
        );
    }

    #[test]
    fn an_export_cut_off_anywhere_is_refused() {
        let whole = export(&["a", "b"]);
        // All but the last newline.
        for at in 0..whole.len() - 1 {
            let damage = damage(&whole[..at]);
            assert!(damage.contains("cut off") || damage.contains("no export"), "{at}: {damage}");
        }
    }
}
