//! The command line of the host program.
//!
//! Parsed by hand: a stand-in for a user's program should not link a library that the user's program would not
//! link.

use std::ffi::OsString;

/// Output of `--help`.
pub const HELP: &str = "\
Loads the library named by CUDA_INJECTION64_PATH as the CUDA driver does, lets the replay library play its recording,
and exits. Prints nothing on stdout except the text of --print.

Usage: gpuwhy-replay-host [options]
  --print TEXT          print TEXT and a newline on stdout after playing
  --exit-code N         exit code, 0 to 255 (default 0)
  --exit HOW            exit: return from main (default); _exit; abort; segfault; kill, term, int: send itself this
                        signal, with the default handler
  --call MS:FUNCTION    call an API function at this time of the recording, such as 200:cudaProfilerStart; repeatable,
                        in order of time; nvtxRangePushA=NAME and nvtxRangePop need --ranges; otherTool=begin acquires
                        CUPTI as another profiler in the program does and prints the result on stderr, otherTool=pause
                        stops recording and keeps CUPTI, otherTool=end releases it, otherTool=clock sets its clock,
                        otherTool=subscribe_v2 subscribes as a tool that allows others beside it;
                        launch=SYMBOL;X,Y,Z;X,Y,Z;SHARED;TIMES launches a kernel with this grid, block and dynamic
                        shared memory, once there is a subscriber to launches; submit=FUNCTION;BYTES,... copies bytes
                        or launches graphs by functions of the driver; memory=FUNCTION;RESULT;WORD;... takes or gives
                        device memory with these parameters (&WORD:WORD is an address); waitFor=FILE waits until that file
                        exists; waitForFault until the fault of GPUWHY_REPLAY_FAULT has occurred; flushes=N waits until
                        the profiler has flushed N times; exitOnThread calls exit on another thread while play continues
  --other-tool STEP     have that other tool perform a step of otherTool= before the profiler is loaded
  --until MILLISECONDS  exit at this time of the recording instead of its end
  --fork WHEN           fork a child: before the library is loaded, after that, or at the end of play
  --child HOW           action of the child: nothing: _exit (default); exit: run the exit handlers; exec: execute this
                        program again; play: continue as the parent does
  --start-on-thread     load the profiler on a thread that exits immediately
  --no-replay           play nothing, even if the profiler has not loaded the replay library
  --ranges WHEN         use NVTX for the first time before the profiler is loaded for CUDA, or after
  --nccl VERSION        before CUDA is initialized, call the plugin named by NCCL_PROFILER_PLUGIN as NCCL does with
                        version 4, 5 or 6 of its interface, and write the recording that is then played; ranges:
                        emit NVTX ranges as NCCL does without a plugin
  --nccl-ranges         emit those NVTX ranges too, after the calls of the plugin
  --counts              print the outcome of the records on stderr

Environment: CUDA_INJECTION64_PATH (the profiler), GPUWHY_CUPTI_PATH (the replay library, which the profiler loads),
GPUWHY_REPLAY (the recording), GPUWHY_REPLAY_SPEED (max, or 1 for real time).

Exit codes: 2 set-up failed, 3 the profiler broke a rule of CUPTI or a forked child failed, otherwise --exit-code.";

/// Version number that stands for NCCL without a plugin.
pub const NCCL_RANGES: u32 = 0;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// Returns from main.
    Exit,
    /// Exits without exit handlers.
    QuickExit,
    /// `SIGABRT`.
    Abort,
    /// An invalid memory access.
    Segfault,
    /// This signal, sent to itself.
    Signal(i32),
}

/// Action of a forked child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// `_exit`.
    Nothing,
    /// `exit`, with its handlers.
    Exit,
    /// Executes this program again, without options.
    Exec,
    /// Continues as the parent does.
    Play,
}

/// Time of the fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// Before the profiler is loaded.
    Before,
    /// After the profiler was initialized, before anything is played.
    After,
    /// After everything was played.
    End,
}

/// Time of the first use of NVTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Before the profiler is loaded for CUDA.
    Before,
    /// After that.
    After,
}

/// All options.
#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    /// Text for stdout.
    pub print: Option<String>,
    /// Exit code.
    pub exit_code: u8,
    /// How the program ends.
    pub exit: ExitKind,
    /// End of play, in nanoseconds after the start of the recording.
    pub until: u64,
    /// Functions to call, with their times in nanoseconds after the start of the recording, ascending.
    pub calls: Vec<(u64, String)>,
    /// Step of another tool before the profiler is loaded.
    pub other_tool: Option<String>,
    /// Time of the fork; `None`: no fork.
    pub fork: Option<Fork>,
    /// Action of the child.
    pub child: Child,
    /// True if the profiler is loaded on a thread that exits immediately.
    pub start_on_thread: bool,
    /// False to play no recording.
    pub replay: bool,
    /// Time of the first use of NVTX; `None`: not used.
    pub ranges: Option<Ranges>,
    /// Version of NCCL's plugin interface, or [`NCCL_RANGES`]; `None`: no NCCL.
    pub nccl: Option<u32>,
    /// True if NCCL also emits NVTX ranges in addition to the plugin events.
    pub nccl_ranges: bool,
    /// True to print counts.
    pub counts: bool,
}

/// Parses the options in `given`, without the program's name. `Ok(None)` requests help.
pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut args = Args {
        print: None,
        exit_code: 0,
        exit: ExitKind::Exit,
        until: u64::MAX,
        calls: Vec::new(),
        other_tool: None,
        fork: None,
        child: Child::Nothing,
        start_on_thread: false,
        replay: true,
        ranges: None,
        nccl: None,
        nccl_ranges: false,
        counts: false,
    };
    let mut given = given.into_iter().map(|text| text.to_string_lossy().into_owned());
    while let Some(option) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{option} needs a value"));
        match option.as_str() {
            "-h" | "--help" => return Ok(None),
            "--counts" => args.counts = true,
            "--other-tool" => args.other_tool = Some(value()?),
            "--print" => args.print = Some(value()?),
            "--exit-code" => args.exit_code = number(&option, &value()?)?,
            "--until" => args.until = number::<u64>(&option, &value()?)?.saturating_mul(1_000_000),
            "--call" => {
                let value = value()?;
                let (at, function) =
                    value.split_once(':').ok_or_else(|| format!("{option} {value}: give MS:FUNCTION"))?;
                let at = number::<u64>(&option, at)?.saturating_mul(1_000_000);
                if args.calls.last().is_some_and(|&(before, _)| at < before) {
                    return Err(format!("{option} {value}: calls must be in order of time"));
                }
                args.calls.push((at, function.to_owned()));
            }
            "--exit" => {
                args.exit = choose(
                    &option,
                    &value()?,
                    &[
                        ("exit", ExitKind::Exit),
                        ("_exit", ExitKind::QuickExit),
                        ("abort", ExitKind::Abort),
                        ("segfault", ExitKind::Segfault),
                        ("kill", ExitKind::Signal(libc::SIGKILL)),
                        ("term", ExitKind::Signal(libc::SIGTERM)),
                        ("int", ExitKind::Signal(libc::SIGINT)),
                    ],
                )?;
            }
            "--fork" => {
                let choices = [("before", Fork::Before), ("after", Fork::After), ("end", Fork::End)];
                args.fork = Some(choose(&option, &value()?, &choices)?);
            }
            "--child" => {
                let choices =
                    [("nothing", Child::Nothing), ("exit", Child::Exit), ("exec", Child::Exec), ("play", Child::Play)];
                args.child = choose(&option, &value()?, &choices)?;
            }
            "--nccl" => {
                args.nccl = Some(choose(&option, &value()?, &[("4", 4), ("5", 5), ("6", 6), ("ranges", NCCL_RANGES)])?)
            }
            "--nccl-ranges" => args.nccl_ranges = true,
            "--start-on-thread" => args.start_on_thread = true,
            "--no-replay" => args.replay = false,
            "--ranges" => {
                args.ranges =
                    Some(choose(&option, &value()?, &[("before", Ranges::Before), ("after", Ranges::After)])?);
            }
            _ => return Err(format!("unknown option {option}; --help lists them")),
        }
    }
    Ok(Some(args))
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} {value}: not a number in range"))
}

fn choose<T: Copy>(option: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == value).map(|&(_, choice)| choice);
    found.ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        format!("{option} {value}: give one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Option<Args>, String> {
        parse(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_read() {
        let args =
            parse_text("--exit kill --fork after --child exit --until 5 --exit-code 7 --print hi").unwrap().unwrap();
        assert_eq!(
            (args.exit, args.fork, args.child),
            (ExitKind::Signal(libc::SIGKILL), Some(Fork::After), Child::Exit)
        );
        assert_eq!((args.until, args.exit_code, args.print.as_deref()), (5_000_000, 7, Some("hi")));
        let args = parse_text("--call 5:cudaProfilerStart --call 7:cudaProfilerStop").unwrap().unwrap();
        let calls = [(5_000_000, "cudaProfilerStart".to_owned()), (7_000_000, "cudaProfilerStop".to_owned())];
        assert_eq!(args.calls, calls);
        assert_eq!(parse_text("--counts --help"), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("--exit soon", "abort"),
            ("--exit-code 256", "256"),
            ("--print", "--print needs"),
            ("--prin x", "--prin"),
            ("--call cudaProfilerStart", "MS:FUNCTION"),
            ("--call 5:a --call 4:b", "order of time"),
        ] {
            assert!(parse_text(text).unwrap_err().contains(part), "{text}");
        }
    }
}
