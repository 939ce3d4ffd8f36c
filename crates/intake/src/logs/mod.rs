//! Logs of kubelet, runtimes, the plugin, Calico's agents and controllers: lines to events.
//!
//! A line is recognised by how it begins ([`prefix`]), and understood by what it says: one file for each who speaks.

mod bare;
mod cni;
mod fields;
mod json;
mod kubelet;
mod prefix;
mod runtime;
mod trouble;

use jiff::civil::DateTime;
use model::NodeName;

use evidence::log::{Happening, LogEvent};
use evidence::{FileGap, Sighted, Trouble};

use super::draft::Draft;
use model::text::Line;

use prefix::LogLine;

/// More events than this are not kept, of all files together; that they are not is said.
pub(crate) const EVENTS_MAX: usize = 100_000;

/// Reads the lines of one file.
#[derive(Debug)]
pub(crate) struct LogReader {
    /// How many events are still kept.
    room: usize,
    /// The last year that a line told.
    year: Option<i16>,
    events: Vec<Sighted<LogEvent>>,
    lines: u64,
    dropped: u64,
}

impl LogReader {
    /// `room`: how many events it may keep.
    pub(crate) fn new(room: usize) -> LogReader {
        LogReader { room, year: None, events: Vec::new(), lines: 0, dropped: 0 }
    }

    /// Takes in a line. `false`: it is no line of a log.
    pub(crate) fn line(&mut self, line: &Line, draft: &Draft) -> bool {
        let Some(read) = prefix::read(&line.text) else { return false };
        self.lines += 1;
        if let Some(time) = read.at.filter(|time| time.year() != 0) {
            self.year = Some(time.year());
        }
        let at = read.at.map(|time| with_year(time, self.year));
        if let Some(what) = understand(&read) {
            if let Happening::PodAddress { started_at: Some(started), .. } = &what {
                self.year.get_or_insert(started.year());
            }
            self.add(at, &read, what, line, draft);
        }
        true
    }

    /// Takes in a row of a tool that shows a trouble. `false`: it shows none.
    pub(crate) fn row(&mut self, line: &Line, draft: &Draft) -> bool {
        self.tell(bare::of_tool(&line.text), line, draft)
    }

    /// Takes in a line of no known form that names a trouble. `false`: it names none.
    pub(crate) fn bare(&mut self, line: &Line, draft: &Draft) -> bool {
        let is_notes = draft.file.as_str().to_ascii_lowercase().ends_with(".md");
        !is_notes && self.tell(bare::named(&line.text), line, draft)
    }

    /// Takes in what another reader has found, if it names a trouble.
    pub(crate) fn found(&mut self, words: String, line: &Line, draft: &Draft) {
        self.tell(Trouble::named_in(&words).map(|trouble| (trouble, words)), line, draft);
    }

    fn tell(&mut self, told: Option<(Trouble, String)>, line: &Line, draft: &Draft) -> bool {
        let Some((trouble, message)) = told else { return false };
        self.lines += 1;
        if self.events.len() >= self.room {
            self.dropped += 1;
            return true;
        }
        let what = Happening::Named { trouble, pod: None, message };
        self.events.push(draft.sight(line, LogEvent { at: None, node: None, what, count: 1, last_at: None }));
        true
    }

    /// How many events it has so far.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether a line is one of a log. Documents hold none that begin like it, except quoted or indented.
    pub(crate) fn is_log(text: &str) -> bool {
        prefix::read(text).is_some()
    }

    fn add(&mut self, at: Option<DateTime>, read: &LogLine<'_>, what: Happening, line: &Line, draft: &Draft) {
        if let Some(last) = self.events.last_mut()
            && last.seen.what == what
            && last.seen.node.as_ref().map(NodeName::as_str) == read.host
        {
            last.seen.count = last.seen.count.saturating_add(1);
            last.seen.last_at = at.or(last.seen.last_at);
            return;
        }
        if self.events.len() >= self.room {
            self.dropped += 1;
            return;
        }
        let node = read.host.map(Into::into);
        let event = LogEvent { at, node, what, count: 1, last_at: None };
        self.events.push(draft.sight(line, event));
    }

    /// Hands over what was read.
    pub(crate) fn finish(mut self, draft: &mut Draft) {
        if self.lines == 0 {
            return;
        }
        // Lines before the first that told the year.
        for event in &mut self.events {
            event.seen.at = event.seen.at.map(|time| with_year(time, self.year));
            event.seen.last_at = event.seen.last_at.map(|time| with_year(time, self.year));
        }
        if self.dropped > 0 {
            draft.add_unseen(FileGap::EventsBeyondLimit { count: self.dropped, limit: EVENTS_MAX });
        }
        draft.cluster.log.get_or_insert_default().append(&mut self.events);
    }
}

fn with_year(time: DateTime, year: Option<i16>) -> DateTime {
    match year {
        Some(year) if time.year() == 0 => time.with().year(year).build().unwrap_or(time),
        _ => time,
    }
}

/// What a line tells, if anything of interest.
fn understand(line: &LogLine<'_>) -> Option<Happening> {
    cni::read(line)
        .or_else(|| kubelet::read(line))
        .or_else(|| runtime::read(line))
        .or_else(|| trouble::read(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn events(text: &str) -> Vec<LogEvent> {
        let mut draft = Draft::new("log");
        let mut reader = LogReader::new(EVENTS_MAX);
        for (number, text) in (1..).zip(text.lines()) {
            let line = Line { number, text: text.to_owned(), is_cut: false };
            assert!(reader.line(&line, &draft), "{text}");
        }
        reader.finish(&mut draft);
        draft.cluster.log.unwrap().into_iter().map(|event| event.seen).collect()
    }

    #[test]
    fn years_are_taken_from_lines_around() {
        let found = events(
            "Dec 13 10:27:40 n kubelet[1]: E1213 10:27:40.000001 1 kubelet.go:1] Failed to x\n\
             Dec 13 10:27:42 n kubelet[1]: time=\"2017-12-13T10:27:42+08:00\" level=error msg=\"etcdserver: leader changed\"",
        );
        let times: Vec<String> = found.iter().map(|event| event.at.unwrap().to_string()).collect();
        assert_eq!(times, ["2017-12-13T10:27:40.000001", "2017-12-13T10:27:42"]);
    }

    #[test]
    fn lines_that_say_the_same_are_one_event() {
        let line = "time=\"2017-12-13T10:27:42+08:00\" level=error msg=\"etcdserver: leader changed\"\n";
        let found = events(&line.repeat(3));
        assert_eq!((found.len(), found[0].count), (1, 3));
    }

    #[test]
    fn what_does_not_fit_is_skipped_and_reported() {
        let mut draft = Draft::new("log");
        let mut reader = LogReader::new(1);
        for (number, id) in (1..).zip(["a1", "a2", "a3"]) {
            let text = format!(
                "time=\"2017-12-12T20:30:00+08:00\" level=info msg=\"Configured environment: [CNI_COMMAND=ADD CNI_CONTAINERID={id} CNI_IFNAME=eth0]\""
            );
            assert!(reader.line(&Line { number, text, is_cut: false }, &draft));
        }
        reader.finish(&mut draft);
        assert_eq!(draft.cluster.log.unwrap().len(), 1);
        let words = draft.cluster.unseen[0].to_string();
        assert!(words.starts_with("log: 2 events were skipped"), "{words}");
    }

    proptest! {
        #[test]
        fn any_line_can_be_tried(text in "\\PC{0,200}") {
            let draft = Draft::new("log");
            LogReader::new(EVENTS_MAX).line(&Line { number: 1, text, is_cut: false }, &draft);
        }

        #[test]
        fn any_message_can_be_tried(message in "(pod|\"|_|\\(|[a-z0-9]{0,6}|Key: /calico/|IPv4s|=|\\[|for|sandbox|:| |PodIP:|WorkloadEndpoint\\(){0,20}") {
            let draft = Draft::new("log");
            let text = format!("2017-12-13 14:19:24.189 [ERROR][1] a.go 1: {message}");
            LogReader::new(EVENTS_MAX).line(&Line { number: 1, text, is_cut: false }, &draft);
        }
    }
}
