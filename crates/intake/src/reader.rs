//! One file, line by line: which reader a line belongs to.

use super::describe::{self, Description};
use super::document::{Documents, Item, JsonSplitter, YamlSplitter};
use super::draft::{Draft, LogOwner, Section};
use super::ipam_report::{IpamReportReader, Told};
use super::iproute::IpReader;
use super::iptables::{self, IptablesReader};
use super::logs::LogReader;
use super::nft::{self, NftReader};
use super::ping::PingReader;
use super::tables::{self, Table};
use super::{command, prompt, setup};
use evidence::FileGap;
use evidence::answers::BgpReader;
use model::text::Line;

/// Reads one file.
#[derive(Debug)]
pub(crate) struct FileReader {
    draft: Draft,
    section: Section,
    mode: Mode,
    table: Option<Table>,
    ip: IpReader,
    iptables: IptablesReader,
    nft: NftReader,
    ping: PingReader,
    bgp: BgpReader,
    ipam: IpamReportReader,
    log: LogReader,
    documents: Documents,
    unknown: Unknown,
    /// How many bytes of evidence it may keep, and how many lines were skipped because there were more.
    room: usize,
    skipped: u64,
}

/// Lines and items that nobody knows: how many, and the first.
#[derive(Debug, Default)]
struct Unknown {
    count: u64,
    first: u32,
}

impl Unknown {
    fn add(&mut self, line: u32) {
        if self.count == 0 {
            self.first = line;
        }
        self.count += 1;
    }
}

/// Some formats are read as a whole.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    Lines,
    Json(JsonSplitter),
    Yaml(YamlSplitter),
    Description(Description),
}

impl FileReader {
    /// How much it may keep: events of logs, and bytes of everything.
    pub(crate) fn new(name: &str, events: usize, room: usize) -> FileReader {
        FileReader {
            draft: Draft::new(name),
            section: Section::default(),
            mode: Mode::Lines,
            table: None,
            ip: IpReader::default(),
            iptables: IptablesReader::default(),
            nft: NftReader::default(),
            ping: PingReader::default(),
            bgp: BgpReader::default(),
            ipam: IpamReportReader::default(),
            log: LogReader::new(events),
            documents: Documents::default(),
            unknown: Unknown::default(),
            room,
            skipped: 0,
        }
    }

    pub(crate) fn line(&mut self, line: Line) {
        if self.draft.kept() > self.room {
            self.skipped += 1;
            return;
        }
        if let Some(section) = prompt::section(&line.text) {
            self.end_section();
            self.documents.command(section.command.as_deref().unwrap_or_default());
            self.section = section;
            let pod = command::pod_of_logs(self.section.command.as_deref().unwrap_or_default());
            self.draft.log_goes_to(LogOwner {
                first: self.log.len(),
                pod: pod.map(str::to_owned),
                host: self.section.host.clone(),
            });
            return;
        }
        let is_over = match self.mode {
            Mode::Lines => false,
            Mode::Description(_) => describe::begins(&line.text) || LogReader::is_log(&line.text),
            // A document that was cut, in the middle of a log.
            Mode::Json(_) | Mode::Yaml(_) => LogReader::is_log(&line.text),
        };
        if is_over {
            self.end_mode();
        }
        match self.mode {
            Mode::Lines => self.single_line(line),
            _ => self.document_line(line),
        }
    }

    fn document_line(&mut self, line: Line) {
        let mut mode = std::mem::take(&mut self.mode);
        let mut is_over = false;
        match &mut mode {
            Mode::Lines => {}
            // One by one: a single line may hold millions.
            Mode::Json(splitter) => is_over = splitter.feed(&line, |item| self.item(item)),
            Mode::Yaml(splitter) => splitter.feed(&line, |item| self.item(item)),
            Mode::Description(description) => description.push(line),
        }
        if !is_over {
            self.mode = mode;
        }
    }

    pub(crate) fn finish(mut self) -> Draft {
        self.end_section();
        self.log.finish(&mut self.draft);
        if self.skipped > 0 {
            self.draft.add_unseen(FileGap::BeyondMemory(self.skipped));
        }
        let Unknown { first, count } = self.unknown;
        if count > 0 {
            let gap = match self.draft.is_empty() {
                true => FileGap::UnknownFormat,
                false => FileGap::Lines { first, count },
            };
            self.draft.add_unseen(gap);
        }
        self.draft.finish()
    }

    fn single_line(&mut self, line: Line) {
        if line.text.trim().is_empty() {
            self.table = None;
            return;
        }
        if let Some(told) = self.ping.line(&line.text) {
            if let Some(words) = told {
                self.log.found(words, &line, &self.draft);
            }
            return;
        }
        if self.log.line(&line, &self.draft)
            || self.log.row(&line, &self.draft)
            || self.begin_document(&line)
            || self.known_line(&line)
            || self.log.bare(&line, &self.draft)
        {
            return;
        }
        // Tools that are not looked at, ellipses of an editor, headings.
        if !matches!(line.text.trim(), "..." | "…" | "Events:" | "--More--")
            && !line.text.starts_with("bird: ")
        {
            self.unknown.add(line.number);
        }
    }

    /// Switches to a format that is read as a whole.
    fn begin_document(&mut self, line: &Line) -> bool {
        // With `-o extended`, etcdctl of 2017 prints a heading.
        let text = line.text.trim();
        if self.documents.key(text.strip_prefix("Key: ").unwrap_or(text)) || is_of_extended_key(text) {
            return true;
        }
        // `etcdctl get --print-value-only=false` on one line, or a key that nobody here knows.
        if JsonSplitter::begins(&line.text) {
            self.mode = Mode::Json(JsonSplitter::default());
        } else if YamlSplitter::begins(&line.text) {
            self.mode = Mode::Yaml(YamlSplitter::default());
        } else if describe::begins(&line.text) {
            self.mode = Mode::Description(Description::default());
        } else {
            return line.text.starts_with("/calico/") && !line.text.contains(' ');
        }
        self.document_line(line.clone());
        true
    }

    fn known_line(&mut self, line: &Line) -> bool {
        if let Some(table) = Table::begin(&line.text, &self.section) {
            table.open(&self.section, &mut self.draft);
            self.table = Some(table);
            return true;
        }
        if let Some(table) = &self.table
            && table.row(line, &self.section, &mut self.draft)
        {
            return true;
        }
        let draft = &self.draft;
        if self.nft.line(&line.text, || draft.origin(line)) {
            draft.keep_rule(&line.text);
            return true;
        }
        if self.iptables.line(&line.text, || draft.origin(line)) {
            draft.keep_rule(&line.text);
            return true;
        }
        if self.bgp.line(&line.text, || draft.origin(line)) || self.ip.line(&line.text, || draft.origin(line))
        {
            return true;
        }
        if let Some(told) = self.ipam.line(&line.text) {
            match told {
                Told::Problem(problem) => {
                    let problem = self.draft.sight(line, problem);
                    self.draft.ipam().reported.push(problem);
                }
                Told::Report => drop(self.draft.ipam()),
                Told::Known => {}
            }
            return true;
        }
        setup::line(line, &self.section, &mut self.draft)
            || tables::bare_row(line, &self.section, &mut self.draft)
            || is_box(&line.text)
    }

    fn item(&mut self, item: Item) {
        if self.draft.kept() > self.room {
            self.skipped += u64::from(!item.is_frame);
            return;
        }
        let first = item.lines.first().map_or(0, |line| line.number);
        if !self.documents.item(item, &self.section, &mut self.draft) {
            self.unknown.add(first);
        }
    }

    fn end_mode(&mut self) {
        match std::mem::take(&mut self.mode) {
            Mode::Lines => {}
            Mode::Json(splitter) => splitter.finish(|item| self.item(item)),
            Mode::Yaml(splitter) => splitter.finish(|item| self.item(item)),
            Mode::Description(description) => description.finish(&self.section, &mut self.draft),
        }
    }

    fn end_section(&mut self) {
        self.end_mode();
        self.table = None;
        self.ipam = IpamReportReader::default();
        if let Some(bgp) = std::mem::take(&mut self.bgp).bgp {
            let node = self.draft.node(&self.section);
            let named = evidence::NodeEvidence { bgp: Some(bgp), ..Default::default() };
            node.absorb(named);
        }
        self.end_rules();
        let mut kernel = std::mem::take(&mut self.ip).finish(self.section.command.as_deref());
        kernel.absorb(std::mem::take(&mut self.documents.kernel));
        self.draft.place_kernel(&self.section, kernel);
    }

    fn end_rules(&mut self) {
        let ruleset = std::mem::take(&mut self.nft);
        if ruleset.is_beyond_limit() || (self.skipped > 0 && ruleset.has_begun()) {
            self.draft.unseen(FileGap::RulesBeyondLimit { limit: nft::RULES_MAX });
        } else if let Some(firewall) = ruleset.finish() {
            self.draft.add_firewall(&self.section, firewall);
        }
        let rules = std::mem::take(&mut self.iptables);
        // Rules that were skipped could be those that matter.
        if rules.is_beyond_limit() || (self.skipped > 0 && rules.has_begun()) {
            self.draft.unseen(FileGap::RulesBeyondLimit { limit: iptables::RULES_MAX });
            return;
        }
        let is_ipv6 = self.section.command.as_deref().unwrap_or(&self.draft.file).contains("ip6tables");
        if let Some(firewall) = rules.finish(is_ipv6) {
            self.draft.add_firewall(&self.section, firewall);
        }
    }
}

/// The rest of that heading.
fn is_of_extended_key(text: &str) -> bool {
    let number = text.split_once(": ").filter(|(name, _)| {
        matches!(
            *name,
            "Created-Index" | "Modified-Index" | "TTL" | "Index" | "Etcd-Index" | "Raft-Index" | "Raft-Term"
        )
    });
    number.is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

/// Lines of boxes that belong to no table known here.
fn is_box(text: &str) -> bool {
    let text = text.trim();
    text.len() > 2 && text.bytes().all(|byte| matches!(byte, b'+' | b'-' | b'='))
}

#[cfg(test)]
mod tests {
    use evidence::Unseen;

    use super::*;

    fn read(text: &str, room: usize) -> Draft {
        let mut reader = FileReader::new("n.txt", 1_000, room);
        for (number, text) in (1..).zip(text.lines()) {
            reader.line(Line { number, text: text.to_owned(), is_cut: false });
        }
        reader.finish()
    }

    /// However small a line is, what is kept of it is not.
    #[test]
    fn what_does_not_fit_is_skipped_and_reported() {
        let routes: String = (0..100).map(|number| format!("10.0.0.{number} dev eth0\n")).collect();
        let draft = read(&routes, 10_000);
        let kept = draft.nodes.values().next().unwrap().kernel.routes.as_ref().unwrap().len();
        assert!((5..20).contains(&kept), "{kept}");
        let skipped = FileGap::BeyondMemory(100 - kept as u64);
        assert_eq!(draft.cluster.unseen, [Unseen::file("n.txt", skipped)]);
        assert!(read(&routes, 1 << 20).cluster.unseen.is_empty());
    }

    /// Also where a single line holds all of them.
    #[test]
    fn items_that_do_not_fit_are_skipped_and_reported() {
        let items: Vec<String> =
            (0..100).map(|number| format!("{{\"dst\":\"10.0.0.{number}\",\"dev\":\"e\"}}")).collect();
        let draft = read(&format!("[{}]", items.join(",")), 10_000);
        let kept = draft.nodes.values().next().unwrap().kernel.routes.as_ref().unwrap().len();
        assert!((5..20).contains(&kept), "{kept}");
        let skipped = FileGap::BeyondMemory(100 - kept as u64);
        assert_eq!(draft.cluster.unseen[0], Unseen::file("n.txt", skipped));
    }

    #[test]
    fn rules_beyond_the_limit_are_reported() {
        let chains: String =
            (0..=iptables::RULES_MAX).map(|number| format!(":c{number} - [0:0]\n")).collect();
        let draft = read(&format!("*filter\n{chains}COMMIT\n"), 256 << 20);
        assert!(draft.nodes.values().all(|node| node.firewall.is_none()));
        let words: Vec<String> = draft.cluster.unseen.iter().map(Unseen::to_string).collect();
        assert_eq!(
            words,
            ["n.txt: firewall rules were skipped: no dump of more than 100000 chains and rules is read"]
        );
    }

    /// A table that is not whole says nothing, and so do those before it.
    #[test]
    fn rules_that_do_not_fit_are_reported() {
        let rules = "-A c -j ACCEPT\n".repeat(100);
        let draft = read(&format!("*nat\n:d - [0:0]\nCOMMIT\n*filter\n:c - [0:0]\n{rules}COMMIT\n"), 14_000);
        assert!(draft.nodes.values().all(|node| node.firewall.is_none()));
        assert_eq!(draft.cluster.unseen.len(), 2, "{:?}", draft.cluster.unseen);
    }

    /// Each dump was compared with every chain that was known.
    #[test]
    fn a_table_that_is_shown_again_adds_nothing() {
        let dump = |table: &str, chain: &str| {
            format!("$ sudo iptables-save\n*{table}\n:{chain} - [0:0]\n-A {chain} -j ACCEPT\nCOMMIT\n")
        };
        let again = dump("filter", "b").repeat(50);
        let text = [dump("filter", "a"), again, dump("nat", "c")].concat();
        let draft = read(&text, 1 << 20);
        let firewall = &draft.nodes.values().next().unwrap().firewall.as_ref().unwrap().seen;
        let chains: Vec<&str> = firewall.chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(chains, ["a", "c"]);
    }

    /// Prompts are many, events between them are few.
    #[test]
    fn owners_of_a_log_are_no_more_than_its_events() {
        let prompts = "[root@n1 ~]# date\n[root@n2 ~]# date\n".repeat(500);
        let event = "time=\"2017-12-13T10:27:42+08:00\" level=error msg=\"etcdserver: leader changed\"\n";
        let draft = read(&format!("{prompts}{event}{prompts}"), 1 << 20);
        assert_eq!(draft.cluster.log.as_ref().unwrap().len(), 1);
        let owners: Vec<(usize, &str)> = draft
            .log_owners
            .iter()
            .map(|owner| (owner.first, owner.host.as_ref().map_or("", |host| host.as_str())))
            .collect();
        assert_eq!(owners, [(0, "n2"), (1, "n2")]);
    }

    #[test]
    fn what_cannot_be_read_is_named_a_hundred_times_and_then_counted() {
        let draft = read(&"{\"a\": [}]\n$ ip r\n".repeat(150), 1 << 20);
        assert_eq!(draft.cluster.unseen.len(), 101);
        assert_eq!(draft.cluster.unseen[100].to_string(), "n.txt: 50 more items could not be read");
    }

    /// Each was looked for among all before it.
    #[test]
    fn views_of_one_pod_are_one_and_of_others_are_not() {
        let text: String = (0..6)
            .map(|number| {
                format!("$ kubectl exec p{} -n a -- ip r\ndefault via 169.254.1.1 dev eth0\n", number % 3)
            })
            .collect();
        let draft = read(&text, 1 << 20);
        let views = draft.nodes.values().next().unwrap().pod_views.as_ref().unwrap();
        assert_eq!(
            views.iter().map(|view| view.kernel.routes.as_ref().unwrap().len()).collect::<Vec<_>>(),
            [2, 2, 2]
        );
    }
}
