//! One master of the cluster is killed while all ask about many keys. Decisions go on; those of its keys are degraded and
//! say so until its replica has taken over, and then the store decides about all again.
//!
//! What the limits admit is not counted here: a failover may lose the last writes, which had not reached the replica.

use std::thread;
use std::time::{Duration, Instant};

use grifo_tests::{Cluster, Server};

use crate::crew::Crew;
use crate::masters::{self, Master};
use crate::outage_check::{check, report};
use crate::outage_view::{Rates, Stage, View};
use crate::proof::Proof;
use crate::screen::{Screen, Style};
use crate::served::Served;
use crate::{DEADLINE, FRAME};

const KEYS: usize = 60;
/// Of the masters, the one that is killed.
const VICTIM: usize = 0;
/// How long it is watched while all is well.
const HEALTHY: Duration = Duration::from_secs(2);
/// Every key is decided by the store again when none was degraded for so long.
const STEADY: Duration = Duration::from_secs(1);
/// Every process has asked about every key within this, also on a busy machine.
const BEGUN_WITHIN: Duration = Duration::from_secs(15);
/// The replica takes over, and all is well again, within this after the kill.
const OVER_WITHIN: Duration = Duration::from_secs(30);
/// A process that gave no decision for so long has stopped deciding.
const SILENCE: Duration = DEADLINE.saturating_mul(6);

struct Outage<'a> {
    crew: &'a mut Crew,
    screen: &'a mut Screen,
    view: View,
    start: Instant,
    rates: Rates,
    /// How many decisions each process gave, and when that last changed.
    progress: Vec<(u64, Instant)>,
    /// How many decisions were degraded, and when that last changed.
    degraded: (u64, Option<Instant>),
}

pub(crate) fn run(cluster: &mut Cluster, proof: &Proof, crew: &mut Crew, screen: &mut Screen) -> Result<(), String> {
    let names: Vec<String> = (1..=KEYS).map(|number| format!("user:{number}")).collect();
    let masters = masters::locate(proof.runtime(), proof.client(), &cluster.url(), &names)?;
    let port = masters.get(VICTIM).ok_or("the cluster has no master")?.port;
    let victim = cluster.node_on(port).ok_or("the master is none of this cluster")?;
    let replica = *cluster.replicas_of(victim).first().ok_or("the master has no replica")?;
    let replica_port = cluster.node(replica).port();
    screen.say(
        Style::Plain,
        &format!("\nEach asks about {KEYS} keys in turn, spread over the masters; then one dies.\n\n"),
    );

    let mut outage = Outage::begin(crew, screen, &masters)?;
    outage.watch_until_steady()?;
    outage.say("healthy: the store decides about all keys");
    outage.watch_for(HEALTHY)?;
    let own = masters[VICTIM].keys.len();
    outage.view.stage = Stage::Killed;
    cluster.node_mut(victim).kill_hard();
    outage.say(&format!("master killed: it was 127.0.0.1:{port}, which held {own} of the keys"));
    outage.watch_until_over(replica_port, || is_master(cluster.node(replica)))?;
    outage.end(own)
}

/// One that does not answer is none, for now.
fn is_master(node: &Server) -> bool {
    // Asked only if it answers: one that is frozen would hold up the view.
    let role = || node.try_command::<Vec<redis::Value>, _>(&["ROLE"]).ok()?.into_iter().next();
    let name = node.answers().then(role).flatten().map(redis::from_redis_value::<String>);
    name.is_some_and(|name| name.is_ok_and(|name| name == "master"))
}

impl<'a> Outage<'a> {
    fn begin(crew: &'a mut Crew, screen: &'a mut Screen, masters: &[Master]) -> Result<Self, String> {
        let keys: Vec<Vec<String>> = masters.iter().map(|master| master.keys.clone()).collect();
        if keys.iter().any(Vec::is_empty) {
            return Err("a master holds none of the keys".to_owned());
        }
        crew.spread(&keys)?;
        let start = Instant::now();
        let progress = crew.served()?.iter().map(|_| (0, start)).collect();
        let view = View::new(masters);
        Ok(Self { crew, screen, view, start, rates: Rates::default(), progress, degraded: (0, None) })
    }

    fn say(&mut self, event: &str) {
        self.screen.say(Style::Plain, &format!("{:>5.1} s  {event}", self.start.elapsed().as_secs_f64()));
    }

    /// Looks at everybody, and shows what it sees.
    fn look(&mut self) -> Result<Vec<Served>, String> {
        let all = self.crew.served()?;
        let now = Instant::now();
        for (number, (one, (count, since))) in (1..).zip(all.iter().zip(&mut self.progress)) {
            if one.all() != *count {
                (*count, *since) = (one.all(), now);
            } else if *count > 0 && since.elapsed() > SILENCE {
                return Err(format!("process {number} gave no decision for {SILENCE:?}"));
            }
        }
        let sum = Served::together(&all);
        if sum.open() != self.degraded.0 {
            self.degraded = (sum.open(), Some(now));
        }
        self.rates.note(now, &sum);
        self.draw(&sum, false);
        Ok(all)
    }

    fn draw(&mut self, sum: &Served, is_last: bool) {
        let frame = self.view.frame(self.start.elapsed(), sum, &self.rates, self.screen.width());
        self.screen.draw(&frame, is_last);
    }

    /// Until the store decided last about every key of every process.
    fn watch_until_steady(&mut self) -> Result<(), String> {
        loop {
            let all = self.look()?;
            if self.view.is_steady(&all) {
                return Ok(());
            }
            if self.start.elapsed() > BEGUN_WITHIN {
                return Err(format!("the store did not decide about all keys within {BEGUN_WITHIN:?}"));
            }
            thread::sleep(FRAME);
        }
    }

    fn watch_for(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.look()?;
            thread::sleep(FRAME);
        }
        match self.degraded.0 {
            0 => Ok(()),
            count => Err(format!("{count} decisions were degraded before any master was killed")),
        }
    }

    /// Until the replica has taken over and the store has decided about all keys for a while.
    fn watch_until_over(&mut self, replica: u16, has_taken_over: impl Fn() -> bool) -> Result<(), String> {
        let killed = Instant::now();
        let mut is_degraded = false;
        while self.view.stage != Stage::Again {
            let all = self.look()?;
            if !is_degraded && self.degraded.0 > 0 {
                is_degraded = true;
                self.say(&format!("its keys are degraded: source open, reason {}", reasons(&all)));
            }
            if self.view.stage == Stage::Killed && has_taken_over() {
                self.view.stage = Stage::TookOver;
                self.view.replace(VICTIM, replica);
                self.say(&format!("replica took over: it is 127.0.0.1:{replica}"));
            }
            if let Some(last) = self.last_degraded(&all).filter(|_| self.view.stage == Stage::TookOver) {
                self.view.stage = Stage::Again;
                self.view.outage = last.duration_since(killed);
                self.say(&format!("all store again: the last degraded decision was {}", self.view.after_the_kill()));
            }
            if killed.elapsed() > OVER_WITHIN {
                return Err(format!("{OVER_WITHIN:?} after the kill {}", missing(self.view.stage, is_degraded)));
            }
            thread::sleep(FRAME);
        }
        Ok(())
    }

    /// When the last decision was degraded, if that is long enough ago to be the last.
    fn last_degraded(&self, all: &[Served]) -> Option<Instant> {
        self.degraded.1.filter(|last| last.elapsed() >= STEADY && self.view.is_steady(all))
    }

    /// Stops all, and checks what they saw.
    fn end(mut self, own: usize) -> Result<(), String> {
        self.look()?;
        self.crew.stop()?;
        let sum = Served::together(&self.crew.served()?);
        self.draw(&sum, true);
        check(&sum, VICTIM)?;
        if sum.open() != self.degraded.0 {
            return Err("decisions were degraded after all was well again".to_owned());
        }
        report(&sum, VICTIM, own, &self.view.after_the_kill(), self.screen);
        Ok(())
    }
}

fn reasons(all: &[Served]) -> String {
    let sum = Served::together(all);
    let reasons: Vec<&str> = sum.shards.iter().flat_map(|shard| shard.reasons()).map(|(reason, _)| reason).collect();
    reasons.join(", ")
}

const fn missing(stage: Stage, is_degraded: bool) -> &'static str {
    match stage {
        Stage::Killed => "its replica has not taken over",
        _ if is_degraded => "decisions are still degraded",
        _ => "no decision has been degraded",
    }
}
