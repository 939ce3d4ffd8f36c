//! What to leave out of a configuration that BIRD refuses, found by trying: rather all but one peer than none of what has changed.

use std::collections::{BTreeMap, BTreeSet};

use super::{BgpFilter, BgpView};

/// What BIRD is not told, because it refuses whatever has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// By the names that BIRD knows them by.
    pub sessions: BTreeSet<String>,
    pub filters: BTreeSet<String>,
    /// `prefixAdvertisements`, `ignoredInterfaces` and ranges of services.
    pub settings: bool,
}

/// The least that has to be left out of a view that BIRD refuses, as far as trying shows: first what goes without any session, then sessions
/// without filters, then filters, each by halves. `None` if BIRD refuses even a configuration without sessions.
///
/// `accepts` asks BIRD about a text; it is asked about as often as there is something to leave out, times the logarithm of how much there is.
pub fn find_refused<E>(
    view: &BgpView,
    mut accepts: impl FnMut(&str) -> Result<bool, E>,
) -> Result<Option<LeftOut>, E> {
    let Some(bird) = view.decide() else { return Ok(None) };
    let sessions: Vec<String> = bird.sessions.iter().map(|session| session.name()).collect();
    let filters: Vec<String> = view.filters.keys().cloned().collect();
    let mut trying = Trying { view, accepts: |text: &str| accepts(text), left_out: LeftOut::default() };
    let none = |settings| LeftOut {
        sessions: sessions.iter().cloned().collect(),
        filters: BTreeSet::new(),
        settings,
    };
    trying.left_out = none(false);
    if !trying.is_accepted(&BTreeSet::new())? {
        trying.left_out = none(true);
        if !trying.is_accepted(&BTreeSet::new())? {
            return Ok(None);
        }
    }
    trying.admit_sessions(&sessions)?;
    let mut admitted = BTreeSet::new();
    trying.admit_filters(&filters, &mut admitted)?;
    trying.left_out.filters = filters.into_iter().filter(|filter| !admitted.contains(filter)).collect();
    Ok(Some(trying.left_out))
}

struct Trying<'v, F> {
    view: &'v BgpView,
    accepts: F,
    left_out: LeftOut,
}

impl<E, F: FnMut(&str) -> Result<bool, E>> Trying<'_, F> {
    /// Whether BIRD takes the sessions that are not left out, with only these filters; the others are tried as if they said nothing.
    fn is_accepted(&mut self, filters: &BTreeSet<String>) -> Result<bool, E> {
        let said = |(name, filter): (&String, &BgpFilter)| {
            let filter = if filters.contains(name) { filter.clone() } else { BgpFilter::default() };
            (name.clone(), filter)
        };
        let tried: BTreeMap<String, BgpFilter> = self.view.filters.iter().map(said).collect();
        let view = BgpView { filters: tried, left_out: self.left_out.clone(), ..self.view.clone() };
        view.decide().map_or(Ok(false), |bird| (self.accepts)(&bird.config))
    }

    /// Takes back into the configuration whatever of these can be.
    fn admit_sessions(&mut self, sessions: &[String]) -> Result<(), E> {
        if sessions.is_empty() {
            return Ok(());
        }
        let before = self.left_out.sessions.clone();
        self.left_out.sessions.retain(|session| !sessions.contains(session));
        if self.is_accepted(&BTreeSet::new())? {
            return Ok(());
        }
        self.left_out.sessions = before;
        let (first, second) = sessions.split_at(sessions.len() / 2);
        if !first.is_empty() {
            self.admit_sessions(first)?;
            self.admit_sessions(second)?;
        }
        Ok(())
    }

    fn admit_filters(&mut self, filters: &[String], admitted: &mut BTreeSet<String>) -> Result<(), E> {
        if filters.is_empty() {
            return Ok(());
        }
        let mut tried = admitted.clone();
        tried.extend(filters.iter().cloned());
        if self.is_accepted(&tried)? {
            *admitted = tried;
            return Ok(());
        }
        let (first, second) = filters.split_at(filters.len() / 2);
        if !first.is_empty() {
            self.admit_filters(first, admitted)?;
            self.admit_filters(second, admitted)?;
        }
        Ok(())
    }
}
