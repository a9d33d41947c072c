//! What a process and its threads are called, and where it stands in its job by the variables of its launcher.

use profiler_core::dictionary::Dictionary;
use profiler_core::record::ThreadId;
use profiler_core::session::Session;

/// In order of preference: torchrun and its like, then Slurm, Open MPI, other MPIs.
const RANK: [&str; 4] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];
const WORLD: [&str; 4] = ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The rank of the process in its job, if it has one.
pub fn rank(session: &Session) -> Option<u32> {
    first(session, &RANK)
}

/// The processes of the job, if known.
pub fn world_size(session: &Session) -> Option<u32> {
    first(session, &WORLD)
}

/// The name of the program: the file of its first argument.
pub fn program(session: &Session) -> &str {
    let first = session.command.first().map_or("", String::as_str);
    match first.rsplit('/').next() {
        Some("") | None => "process",
        Some(name) => name,
    }
}

/// What a thread is called: by its number, behind the name that the program gave to it.
pub fn thread(id: ThreadId, dictionary: &Dictionary) -> String {
    match dictionary.thread_name(id) {
        Some(name) => format!("{name}, thread {id}"),
        None => format!("thread {id}"),
    }
}

fn first(session: &Session, wanted: &[&str]) -> Option<u32> {
    wanted.iter().find_map(|wanted| {
        let (_, value) = session.rank_variables.iter().find(|(name, _)| name == wanted)?;
        value.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(variables: &[(&str, &str)]) -> Session {
        let rank_variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Session { rank_variables, command: vec!["/usr/bin/python3".to_owned()], ..Session::default() }
    }

    #[test]
    fn the_launcher_closest_to_the_program_is_believed() {
        let slurm_and_torch = session(&[("SLURM_PROCID", "0"), ("RANK", "5"), ("WORLD_SIZE", "8")]);
        assert_eq!((rank(&slurm_and_torch), world_size(&slurm_and_torch)), (Some(5), Some(8)));
        assert_eq!(rank(&session(&[("RANK", "x"), ("PMI_RANK", "2")])), Some(2));
        assert_eq!(rank(&session(&[])), None);
        assert_eq!(program(&session(&[])), "python3");
    }
}
