//! Both sides of the worker protocol: the tuner reading a worker's lines, a worker reading the tuner's.

#![no_main]

use std::io::BufReader;
use std::path::Path;

use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::measured_by::Source;
use autotune_lowered::timer::protocol::{
    BeginParams, CompileAnswer, CompileParams, Hello, LineRead, LoadAnswer, LoadParams, MeasureAnswer, OutputsAnswer,
    Response, read_line,
};
use autotune_lowered::timer::server::{Worker, serve};
use libfuzzer_sys::fuzz_target;

struct Dummy;

impl Worker for Dummy {
    fn hello(&mut self) -> Result<Hello, Failure> {
        Ok(Hello::new("dummy", Source::HostWall, Vec::new()))
    }

    fn begin(&mut self, params: BeginParams) -> Result<(), Failure> {
        params.inputs.iter().for_each(|input| {
            let _ = input.spec.host_bytes();
        });
        Ok(())
    }

    fn compile(&mut self, params: CompileParams) -> Result<CompileAnswer, Failure> {
        Err(Failure::new(FailureKind::Compile, params.program.path.display().to_string()))
    }

    fn load(&mut self, params: LoadParams) -> Result<LoadAnswer, Failure> {
        Err(Failure::new(FailureKind::NoProgram, params.config.to_string()))
    }

    fn measure(&mut self, _: usize, runs: u32) -> Result<MeasureAnswer, Failure> {
        Ok(MeasureAnswer::new(vec![u64::MAX; runs.min(100) as usize]))
    }

    fn outputs(&mut self, _: usize, _: &Path) -> Result<OutputsAnswer, Failure> {
        Ok(OutputsAnswer::new(Vec::new()))
    }

    fn end(&mut self) {}
}

fuzz_target!(|bytes: &[u8]| {
    let mut answers = Vec::new();
    serve(bytes, &mut answers, &mut Dummy).expect("memory does not fail");
    let mut reader = BufReader::new(answers.as_slice());
    let mut line = Vec::new();
    while read_line(&mut reader, &mut line).expect("memory does not fail") == LineRead::Line {
        let answer: Response = serde_json::from_slice(&line).expect("a worker answers in the protocol");
        assert!(answer.result.is_some() != answer.error.is_some(), "a result or an error, never both");
    }

    let mut reader = BufReader::new(bytes);
    while read_line(&mut reader, &mut line).expect("memory does not fail") != LineRead::End {
        let Ok(answer) = serde_json::from_slice::<Response>(&line) else { continue };
        if let Some(error) = answer.error {
            let failure = Failure::from(error);
            assert!(!failure.to_string().contains('\n'));
        }
        if let Some(result) = answer.result {
            let _ = serde_json::from_value::<Hello>(result.clone()).map(|hello| {
                hello.devices.iter().for_each(|device| {
                    device.to_portable();
                })
            });
            let _ = serde_json::from_value::<CompileAnswer>(result.clone());
            let _ = serde_json::from_value::<LoadAnswer>(result.clone());
            let _ = serde_json::from_value::<MeasureAnswer>(result.clone());
            let _ = serde_json::from_value::<OutputsAnswer>(result).map(|outputs| {
                outputs.outputs.iter().for_each(|output| {
                    let _ = output.spec.host_bytes();
                })
            });
        }
    }
});
