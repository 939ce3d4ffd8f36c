//! Which runs there are, and which figures they give.

use testkit::figures::{Figure, Goal, Peer, median};

use crate::assigns::{self, Taken};
use crate::floor::{self, Floor};
use crate::places::Place;

/// How much is measured.
pub(crate) struct Scale {
    /// Sizes of clusters; the first is what the others are held against.
    pub(crate) blocks: &'static [usize],
    pub(crate) bursts: &'static [usize],
    pub(crate) runs: usize,
    /// A run is at least so many addresses long.
    pub(crate) addresses_min: usize,
}

/// So many single addresses come out of the block that the node has. What a claim costs is in the bursts.
const SINGLES_MAX: usize = 60;
/// Bursts from this size on have goals of their own.
const LARGE_BURST: usize = 110;
const FLOOR: &str = "plain commits";

pub(crate) fn figures(scale: &Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut figures = of_backend(&sqlites(scale).await?, scale).await?;
        match testkit::etcd::missing() {
            None => figures.extend(of_backend(&etcds(scale).await?, scale).await?),
            Some(what) => eprintln!("etcd is not measured: {what}"),
        }
        Ok(figures)
    })
}

async fn sqlites(scale: &Scale) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for blocks in scale.blocks {
        places.push(Place::sqlite(*blocks).await?);
    }
    Ok(places)
}

async fn etcds(scale: &Scale) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for blocks in scale.blocks {
        places.push(Place::etcd(*blocks).await?);
    }
    Ok(places)
}

/// The runs of one place with bursts of one size.
struct Series<'a> {
    place: &'a Place,
    burst: usize,
    runs: Vec<(Taken, Floor)>,
}

async fn of_backend(places: &[Place], scale: &Scale) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for &burst in scale.bursts {
        let mut series: Vec<Series<'_>> =
            places.iter().map(|place| Series { place, burst, runs: Vec::new() }).collect();
        for run in 0..scale.runs {
            for one in &mut series {
                one.run(run, scale.addresses_min).await?;
            }
        }
        figures.extend(series.iter().flat_map(Series::figures));
        figures.extend(series.iter().skip(1).map(|one| one.beside(&series[0])));
    }
    for place in places {
        let most = assigns::one_shot_round_trips(&place.store, "bench-one-shot".to_owned()).await?;
        let name = format!("{}: single assign in a one-shot, round trips", place.described());
        figures
            .push(with_floor(Figure::new(name, most as f64, "at most"), 1.0).wanted(Goal::ValueAtMost(4.0)));
    }
    Ok(figures)
}

impl Series<'_> {
    async fn run(&mut self, run: usize, addresses_min: usize) -> anyhow::Result<()> {
        let (store, node) = (&self.place.store, format!("bench-{}-{run}", self.burst));
        let addresses = if self.burst == 1 { addresses_min.min(SINGLES_MAX) } else { addresses_min };
        let taken = assigns::in_bursts(store, node.clone(), self.burst, addresses).await?;
        let floor = floor::write(store, &node, self.burst, taken.addresses / self.burst).await?;
        eprintln!(
            "{}, {} at once, run {run}: {:.0} addresses/s, {FLOOR} {:.0}",
            self.place.described(),
            self.burst,
            rate(&taken),
            taken.addresses as f64 / floor.time.as_secs_f64(),
        );
        self.runs.push((taken, floor));
        Ok(())
    }

    fn name(&self, what: &str) -> String {
        match self.burst {
            1 => format!("{}: single assigns, {what}", self.place.described()),
            burst => format!("{}: bursts of {burst}, {what}", self.place.described()),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = vec![self.rate(), self.writes(), self.transactions()];
        if self.burst == 1 {
            let most = self.runs.iter().map(|(taken, _)| taken.round_trips_max).max().unwrap_or_default();
            let figure = Figure::new(self.name("round trips"), most as f64, "at most");
            figures.push(with_floor(figure, 1.0).wanted(Goal::ValueAtMost(2.0)));
        }
        figures
    }

    fn rate(&self) -> Figure {
        let floor = |(taken, floor): &(Taken, Floor)| taken.addresses as f64 / floor.time.as_secs_f64();
        let peer = Peer {
            name: FLOOR,
            value: self.median(floor),
            ratio: Some(self.median(|run| rate(&run.0) / floor(run))),
        };
        let value = self.median(|(taken, _)| rate(taken));
        let figure = Figure::new(self.name("rate"), value, "addresses/s").with_peer(peer);
        if self.burst >= LARGE_BURST { figure.wanted(Goal::ValueAtLeast(10_000.0)) } else { figure }
    }

    fn writes(&self) -> Figure {
        let per_address = |(taken, _): &(Taken, Floor)| taken.counts.writes as f64 / taken.addresses as f64;
        let floor = |(taken, floor): &(Taken, Floor)| floor.writes as f64 / taken.addresses as f64;
        let figure = Figure::new(self.name("record writes"), self.median(per_address), "per address");
        with_floor(figure, self.median(floor))
    }

    /// Every transaction that the store was asked for counts, also one that was refused.
    fn transactions(&self) -> Figure {
        let per_address = |(taken, _): &(Taken, Floor)| taken.counts.commits as f64 / taken.addresses as f64;
        let floor = |(taken, floor): &(Taken, Floor)| floor.commits as f64 / taken.addresses as f64;
        let figure = Figure::new(self.name("transactions"), self.median(per_address), "per address");
        let figure = with_floor(figure, self.median(floor));
        if self.burst >= LARGE_BURST { figure.wanted(Goal::ValueAtMost(0.03)) } else { figure }
    }

    /// What an address costs here, beside a smaller cluster that took turns with this one.
    fn beside(&self, smaller: &Series<'_>) -> Figure {
        let costs = |series: &Series<'_>| series.runs.iter().map(|(taken, _)| 1e3 / rate(taken)).collect();
        let (own, others): (Vec<f64>, Vec<f64>) = (costs(self), costs(smaller));
        let ratios = own.iter().zip(&others).map(|(own, other)| own / other).collect();
        let peer = Peer { name: "1 block", value: median(others), ratio: Some(median(ratios)) };
        let figure = Figure::new(self.name("cost"), median(own), "ms").with_peer(peer);
        figure.wanted(Goal::RatioAtMost(1.2))
    }

    fn median(&self, value: impl Fn(&(Taken, Floor)) -> f64) -> f64 {
        median(self.runs.iter().map(value).collect())
    }
}

fn rate(taken: &Taken) -> f64 {
    taken.addresses as f64 / taken.time.as_secs_f64()
}

fn with_floor(figure: Figure, floor: f64) -> Figure {
    let ratio = Some(figure.value / floor);
    figure.with_peer(Peer { name: FLOOR, value: floor, ratio })
}
