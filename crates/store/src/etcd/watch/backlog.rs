//! How much of what a watch has handed over is still unread.

use std::collections::VecDeque;

use crate::{Event, Watch};

/// The channel bounds the number of batches; a batch may hold a thousand revisions, so their size is bounded too.
const BYTES_MAX: usize = 8 << 20;

/// The sizes of the batches handed over last, as many as the channel can hold.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    sizes: VecDeque<usize>,
}

impl Backlog {
    pub(super) fn add(&mut self, batch: &[Event]) {
        if self.sizes.len() == Watch::BUFFER {
            self.sizes.pop_front();
        }
        self.sizes.push_back(batch.iter().map(size).sum());
    }

    pub(super) fn is_too_large<T>(&self, sender: &tokio::sync::mpsc::Sender<T>) -> bool {
        self.bytes(sender.max_capacity() - sender.capacity()) > BYTES_MAX
    }

    /// The reader takes the oldest first, so the unread ones are those added last.
    fn bytes(&self, unread: usize) -> usize {
        self.sizes.iter().rev().take(unread).sum()
    }
}

fn size(event: &Event) -> usize {
    match event {
        Event::Put(record) => record.value.len(),
        Event::Deleted { .. } | Event::HistoryGone => 0,
    }
}

#[cfg(test)]
mod tests {
    use model::Key;

    use super::*;
    use crate::Record;

    #[test]
    fn only_what_is_unread_counts() {
        let mut backlog = Backlog::default();
        for bytes in 1..=Watch::BUFFER + 10 {
            let value = vec![0; bytes].into();
            let record = Record { key: Key::IpamConfig, value, revision: 2.into() };
            backlog.add(&[Event::Put(record)]);
        }
        let last = Watch::BUFFER + 10;
        assert_eq!(backlog.bytes(0), 0);
        assert_eq!(backlog.bytes(2), last + last - 1);
        assert_eq!(backlog.sizes.len(), Watch::BUFFER);
    }
}
