//! Components that are valid and small to say, and monstrous to compile. Made here, since the
//! largest has 60 MB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpux_hostile_support::memory;
use gpux_sandbox::{ComponentConfig, Limits};
use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentSectionId, ComponentTypeSection, Function, FunctionSection, Module,
    ModuleSection, PrimitiveValType, RawSection, TypeSection, ValType,
};

use crate::{SANDBOX, alone};

/// Memory that this process may take for a monster: the file itself, read a few times over. The
/// compiler's own is in a process that has its limits.
const OWN: usize = 512 << 20;

/// Processor time that a child may take for one: twice its limit, and as much again for what it
/// reads and frees.
const LATEST: Duration = Duration::from_secs(8);

/// One of them: its name, and how it is made.
type Monster = (&'static str, fn() -> Vec<u8>);

/// A component around one core module of these functions, `(i32) -> i32` each.
fn component(functions: impl Iterator<Item = Function>) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let (mut declared, mut code) = (FunctionSection::new(), CodeSection::new());
    for function in functions {
        declared.function(0);
        code.function(&function);
    }
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&code);
    let mut component = Component::new();
    component.section(&ModuleSection(&module));
    component.finish()
}

/// Functions that make a file of 60 MB.
fn many_functions() -> Vec<u8> {
    let function = |number: usize| {
        let mut function = Function::new([(2, ValType::I32)]);
        let mut body = function.instructions();
        for step in 0..20 {
            body.local_get(0).i32_const((number * 20 + step) as i32).i32_mul().local_get(1).i32_add().local_set(1);
        }
        body.local_get(1).end();
        function
    };
    component((0..240_000).map(function))
}

/// One function as long as a function may be, with every value alive to its end.
fn one_function() -> Vec<u8> {
    let locals = 20_000;
    let mut function = Function::new([(locals, ValType::I32)]);
    let mut body = function.instructions();
    for local in 1..=locals {
        body.local_get(0).i32_const(local as i32).i32_mul().local_set(local);
    }
    for round in 0..20 {
        for local in 1..=locals {
            body.local_get(local).local_get(1 + (local * 7919 + round) % locals).i32_xor().local_set(local);
        }
    }
    body.local_get(0);
    for local in 1..=locals {
        body.local_get(local).i32_add();
    }
    body.end();
    component(std::iter::once(function))
}

/// Jumps to thousands of places, from thousands of places.
fn jump_tables() -> Vec<u8> {
    let depth = 2000;
    let mut function = Function::new([]);
    let mut body = function.instructions();
    for _ in 0..depth {
        body.block(BlockType::Empty);
    }
    for outer in 0..depth {
        body.local_get(0).if_(BlockType::Empty).local_get(0);
        // The block of this `if` is the innermost.
        body.br_table((1..depth - outer).collect::<Vec<_>>(), 0).end().end();
    }
    body.local_get(0).end();
    component(std::iter::once(function))
}

/// Blocks in blocks in blocks.
fn deep_blocks() -> Vec<u8> {
    let depth = 500_000;
    let mut function = Function::new([]);
    let mut body = function.instructions();
    for _ in 0..depth {
        body.block(BlockType::Result(ValType::I32));
    }
    body.local_get(0);
    for _ in 0..depth {
        body.end();
    }
    body.end();
    component(std::iter::once(function))
}

/// Components in components in components.
fn nested_components() -> Vec<u8> {
    let mut bytes = Component::new().finish();
    for _ in 0..10_000 {
        let mut outer = Component::new();
        outer.section(&RawSection { id: ComponentSectionId::Component.into(), data: &bytes });
        bytes = outer.finish();
    }
    bytes
}

/// A list of lists of lists.
fn deep_types() -> Vec<u8> {
    let mut types = ComponentTypeSection::new();
    types.defined_type().primitive(PrimitiveValType::U8);
    for depth in 0..100_000 {
        types.defined_type().list(wasm_encoder::ComponentValType::Type(depth));
    }
    let mut component = Component::new();
    component.section(&types);
    component.finish()
}

/// A pair of pairs of pairs: every level is twice as large.
fn doubling_types() -> Vec<u8> {
    let mut types = ComponentTypeSection::new();
    types.defined_type().primitive(PrimitiveValType::U8);
    for depth in 0..40 {
        let one = wasm_encoder::ComponentValType::Type(depth);
        types.defined_type().tuple([one, one]);
    }
    let mut component = Component::new();
    component.section(&types);
    component.finish()
}

/// The limits of a monster: low, since the test waits for it.
fn limits() -> Limits {
    Limits { compile_time: Duration::from_secs(2), compile_memory: 1 << 30, ..Limits::default() }
}

/// The error for a monster, with the time and memory that it took.
fn refuse(name: &str, monster: &[u8]) -> String {
    let config = ComponentConfig { limits: limits(), ..ComponentConfig::default() };
    let before = memory::begin();
    let begin = Instant::now();
    let spent = children();
    let error = SANDBOX.load(monster, config, &Arc::default()).err().unwrap().to_string();
    let spent = children().saturating_sub(spent);
    let taken = before.zip(memory::peak()).map_or(0, |(before, peak)| peak.saturating_sub(before));
    let size = monster.len() / 1_000_000;
    println!("{name}: {size} MB, {:.1?}, {spent:.1?} of the child's, {} MiB: {error}", begin.elapsed(), taken >> 20);
    assert!(taken < OWN, "{name}: {} MiB", taken >> 20);
    assert!(spent < LATEST, "{name}: {spent:.1?} of the processor's time");
    error
}

/// The processor time of all processes that were asked so far; none where there is no /proc.
fn children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // What follows the name, which may hold anything, begins with field 3; these are 16 and 17.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let hundredths: u64 = fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(hundredths * 10)
}

#[test]
fn rejects_exploding_types_on_read() {
    let _alone = alone();
    let error = refuse("deep types", &deep_types());
    assert!(error.starts_with("this component"), "{error}");
    let error = refuse("doubling types", &doubling_types());
    assert!(error.starts_with("this component"), "{error}");
}

#[test]
fn bounds_compilation_of_huge_components() {
    let _alone = alone();
    let monsters: [Monster; 5] = [
        ("many functions", many_functions),
        ("one function", one_function),
        ("jump tables", jump_tables),
        ("deep blocks", deep_blocks),
        ("nested components", nested_components),
    ];
    for (name, monster) in monsters {
        let error = refuse(name, &monster());
        assert!(error.contains("compile_time") || error.contains("compile_memory"), "{name}: {error}");
    }
}
