//! How far a watch has come. Only whole revisions count, so that a new stream can go on where the last one broke
//! without losing or repeating anything.

use model::Key;

use super::super::list::record;
use super::super::rpc::{self, WatchResponse, event};
use crate::{Event, Revision};

#[derive(Debug)]
pub(super) struct Progress {
    /// Every revision up to this one has been given out.
    whole: i64,
    /// Events of one later revision, of which more may be coming in the next fragment.
    held: Vec<rpc::Event>,
}

impl Progress {
    pub(super) fn after(revision: i64) -> Progress {
        Progress { whole: revision, held: Vec::new() }
    }

    pub(super) fn revision(&self) -> Revision {
        self.whole.into()
    }

    /// Where a new stream has to start.
    pub(super) fn resume_from(&self) -> i64 {
        self.whole + 1
    }

    /// Whether a store at this revision can have given out what we have seen.
    pub(super) fn is_reached_by(&self, revision: i64) -> bool {
        revision >= self.whole
    }

    /// The stream is gone: what it left unfinished will come again.
    pub(super) fn restart(&mut self) {
        self.held.clear();
    }

    /// The events that have become whole with this response.
    pub(super) fn accept(&mut self, response: WatchResponse) -> Vec<Event> {
        let mut given = Vec::new();
        if response.events.is_empty() && !response.fragment && self.held.is_empty() {
            // A progress report: nothing up to the header's revision is still to come. Other responses carry
            // the store's revision too, but there it says nothing about this watch.
            let reported = response.header.map_or(0, |header| header.revision);
            self.whole = self.whole.max(reported);
        }
        for event in response.events {
            let revision = revision_of(&event);
            if revision <= self.whole {
                continue;
            }
            if self.held.first().is_some_and(|held| revision_of(held) != revision) {
                self.release(&mut given);
            }
            self.held.push(event);
        }
        if !response.fragment {
            self.release(&mut given);
        }
        given
    }

    fn release(&mut self, given: &mut Vec<Event>) {
        if let Some(first) = self.held.first() {
            self.whole = revision_of(first);
        }
        given.extend(self.held.drain(..).filter_map(ours));
    }
}

fn revision_of(event: &rpc::Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn ours(event: rpc::Event) -> Option<Event> {
    let is_delete = event.r#type == i32::from(event::EventType::Delete);
    let kv = event.kv?;
    if is_delete {
        let key = Key::from_etcd_text(std::str::from_utf8(&kv.key).ok()?).ok()?;
        return Some(Event::Deleted { key, revision: kv.mod_revision.into() });
    }
    record(kv).map(Event::Put)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::etcd::rpc::{KeyValue, ResponseHeader};

    fn event(revision: i64, name: usize) -> rpc::Event {
        let key = format!("/calico/ipam/v2/handle/h{name}").into();
        rpc::Event { r#type: 0, kv: Some(KeyValue { key, mod_revision: revision, value: "{}".into() }) }
    }

    fn response(events: Vec<rpc::Event>, fragment: bool) -> WatchResponse {
        WatchResponse { events, fragment, ..WatchResponse::default() }
    }

    fn progress_report(revision: i64) -> WatchResponse {
        let header = ResponseHeader { revision, ..ResponseHeader::default() };
        WatchResponse { header: Some(header), ..WatchResponse::default() }
    }

    #[test]
    fn a_revision_in_two_fragments_is_given_out_once_and_whole() {
        let mut progress = Progress::after(4);
        assert_eq!(progress.accept(response(vec![event(5, 0), event(6, 0), event(6, 1)], true)).len(), 1);
        assert_eq!(progress.resume_from(), 6);
        assert_eq!(progress.accept(response(vec![event(6, 2)], false)).len(), 3);
        assert_eq!(progress.resume_from(), 7);
    }

    #[test]
    fn a_stream_that_breaks_inside_a_revision_repeats_it_from_its_start() {
        let mut progress = Progress::after(4);
        assert!(progress.accept(response(vec![event(6, 0), event(6, 1)], true)).is_empty());
        progress.restart();
        assert_eq!(progress.resume_from(), 5);
        let again = vec![event(6, 0), event(6, 1), event(6, 2)];
        assert_eq!(progress.accept(response(again, false)).len(), 3);
    }

    #[test]
    fn progress_reports_move_the_place_to_resume_from() {
        let mut progress = Progress::after(4);
        assert!(progress.accept(progress_report(90)).is_empty());
        assert_eq!(progress.resume_from(), 91);
        assert!(progress.accept(progress_report(50)).is_empty());
        assert_eq!(progress.resume_from(), 91);
    }

    #[test]
    fn keys_of_others_are_passed_over_but_counted() {
        let mut progress = Progress::after(4);
        let mut foreign = event(5, 0);
        foreign.kv.as_mut().unwrap().key = "/calico/felix/v2/no-region/host/a/status".into();
        assert!(progress.accept(response(vec![foreign], false)).is_empty());
        assert_eq!(progress.resume_from(), 6);
    }

    proptest! {
        /// Whatever way the server cuts the history into fragments, and wherever the streams break, every event
        /// comes exactly once, in order.
        #[test]
        fn nothing_is_lost_or_repeated(
            sizes in prop::collection::vec(1_usize..5, 1..12),
            cuts in prop::collection::vec((1_usize..7, any::<bool>()), 1..200),
        ) {
            let history: Vec<rpc::Event> = sizes
                .iter()
                .enumerate()
                .flat_map(|(index, size)| (0..*size).map(move |name| event(index as i64 + 2, name)))
                .collect();
            let expected: Vec<Event> = history.iter().cloned().filter_map(ours).collect();
            let mut progress = Progress::after(1);
            let mut seen = Vec::new();
            let mut position = 0;
            for (size, breaks) in cuts.into_iter().chain(std::iter::repeat((3, false))) {
                let end = (position + size).min(history.len());
                let same_revision_follows = end < history.len()
                    && revision_of(&history[end]) == revision_of(&history[end - 1]);
                let part = history[position..end].to_vec();
                seen.extend(progress.accept(response(part, same_revision_follows)));
                position = end;
                if breaks {
                    progress.restart();
                    let from = progress.resume_from();
                    position = history.iter().position(|event| revision_of(event) >= from).unwrap_or(history.len());
                }
                if position == history.len() && !breaks {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
