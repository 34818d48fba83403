//! Measures grifo beside other rate limiters, in one run and on servers of its own: decisions a second, how long they take,
//! and what they cost this process and the servers.

mod bytes;
mod contender;
mod cpu;
mod findings;
mod first_use;
mod keys;
mod load;
mod options;
mod place;
mod plan;
mod report;
mod rule;
mod sample;
mod series;
mod targets;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use grifo_tests::ServerBinary;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::Runtime;

use crate::findings::Findings;
use crate::options::Options;
use crate::place::{Place, Topology};
use crate::plan::Row;
use crate::report::{chart, json, text};
use crate::series::Series;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let mut rows = plan::rows();
    targets::check(&rows)?;
    rows.retain(|row| options.means(|text| row.is_meant_by(text)));
    let sections = [bytes::TITLE, first_use::TITLE].into_iter().filter(|title| options.means(|it| title.contains(it)));
    let sections: Vec<&str> = sections.collect();
    if options.list {
        rows.iter().map(Row::title).chain(sections.iter().map(|it| (*it).to_owned())).for_each(|it| println!("{it}"));
        return Ok(ExitCode::SUCCESS);
    }
    let bench = Bench {
        options,
        runtime: contender::runtime()?,
        binary: options.server()?,
        progress: progress(rows.iter().map(|row| row.contenders.len()).sum::<usize>() * (options.runs as usize + 1)),
    };
    let findings = bench.measure(&rows, &sections)?;
    bench.progress.finish_and_clear();
    if options.json {
        println!("{:#}", json::of(&findings));
    } else {
        print!("{}", text::end(&findings));
    }
    write(&findings)?;
    let failed = findings.series.iter().any(|series| series.middles().any(|(_, middle)| middle.is_err()));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// On stderr, and only if that is a terminal.
fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left\n{msg}") {
        bar.set_style(style);
    }
    bar
}

struct Bench<'a> {
    options: &'a Options,
    runtime: Runtime,
    binary: &'static ServerBinary,
    progress: ProgressBar,
}

impl Bench<'_> {
    fn measure(&self, rows: &[Row], sections: &[&str]) -> Result<Findings, String> {
        let mut findings = Findings::new(self.binary, self.options.runs, self.options.times());
        self.show(|| text::head(&findings));
        for topology in Topology::ALL {
            let rows: Vec<&Row> = rows.iter().filter(|row| row.topology == topology).collect();
            if rows.is_empty() && (sections.is_empty() || topology == Topology::Memory) {
                continue;
            }
            let place = Place::start(topology, self.binary);
            for row in rows {
                self.progress.set_message(row.title());
                let plan = (self.options.runs as usize, self.options.times());
                let series = Series::measure(&place, row.clone(), plan, &|| self.progress.inc(1));
                self.show(|| text::series(&series));
                findings.series.push(series);
            }
            self.measure_sections(topology, &place, sections, &mut findings)?;
        }
        Ok(findings)
    }

    fn measure_sections(
        &self,
        topology: Topology,
        place: &Place,
        sections: &[&str],
        findings: &mut Findings,
    ) -> Result<(), String> {
        if let Place::Standalone(server) = place
            && sections.contains(&bytes::TITLE)
        {
            findings.bytes = bytes::measure(&self.runtime, server)?;
        }
        if topology != Topology::Memory && sections.contains(&first_use::TITLE) {
            let first = self.runtime.block_on(first_use::measure(topology.name(), &place.url()));
            findings.first_uses.push(first.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn show(&self, text: impl FnOnce() -> String) {
        if !self.options.json {
            self.progress.suspend(|| print!("{}", text()));
        }
    }
}

fn write(findings: &Findings) -> Result<(), String> {
    let folder = findings::target_folder();
    let chart = chart::of(&findings.series).map_err(|error| format!("the chart cannot be drawn: {error}"))?;
    for (name, content) in [("bench.json", format!("{:#}\n", json::of(findings))), ("bench.svg", chart)] {
        let path = folder.join(name);
        fs::write(&path, content).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        eprintln!("written: {}", path.display());
    }
    Ok(())
}
