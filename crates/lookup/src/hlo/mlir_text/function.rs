//! Functions and modules, which are operations that hold others.

use std::borrow::Cow;

use super::state::{Function, Kind, Operation, Reader};
use super::words::{attribute, dictionaries, shown, symbol, symbol_length};
use crate::hlo::graph::Computation;
use crate::hlo::text_cursor::balanced;

impl<'a> Reader<'a, '_> {
    pub(super) fn function(&mut self, is_generic: bool) {
        let function = Function { is_function: true, ..Function::default() };
        let outer = std::mem::replace(&mut self.function, function);
        let mut read = Operation::new(Kind::Function, None, is_generic);
        self.body(&mut read);
        let mut function = std::mem::replace(&mut self.function, outer);
        let mut results = Some(read.result_attributes.as_slice());
        let (named, of_results);
        if is_generic {
            named = attribute(read.text, b"sym_name").map(symbol);
            let arguments = dictionaries(read.text, b"arg_attrs").unwrap_or_default();
            for (node, text) in function.nodes.iter_mut().zip(arguments) {
                node.attributes = text.into();
            }
            of_results = dictionaries(read.text, b"res_attrs");
            results = of_results.as_deref();
        } else {
            named = read.symbols.first().map(|name| symbol(name));
        }
        // a declaration has no body
        if read.has_region {
            let name = self.qualified(named.unwrap_or_default());
            let Function { nodes, returns, .. } = function;
            let results = results.map(|results| results.iter().map(|&text| text.into()).collect());
            (self.each)(Computation { name, nodes, results, returns, ..Computation::default() });
        }
    }

    pub(super) fn module(&mut self, is_generic: bool) {
        // what a module holds besides functions is in no function
        let outer = std::mem::take(&mut self.function);
        let mut read = Operation::new(Kind::Module, None, is_generic);
        read.is_outermost = self.depth == 0;
        self.body(&mut read);
        self.function = outer;
        if read.is_outermost {
            self.name_module(&read);
            // JAX writes the attribute during lowering, before any partitioner runs
            self.head.partitioned = read.partitions.then_some(false).or(self.head.partitioned);
        }
    }

    /// The name of a module whose region begins.
    pub(super) fn enter_module(&mut self, read: &Operation<'a>) {
        if read.is_outermost {
            self.name_module(read);
        } else {
            self.modules.push(module_name(read));
        }
    }

    fn name_module(&mut self, read: &Operation<'a>) {
        let name = shown(Cow::Borrowed(module_name(read))).into_owned();
        if self.head.module.is_none() && !name.is_empty() {
            self.head.module = Some(name);
        }
    }

    /// A function's name with those of the modules around it: `kernels::add`.
    pub(super) fn qualified(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if self.modules.is_empty() {
            return Cow::Borrowed(name);
        }
        let path: Vec<&[u8]> = self.modules.iter().copied().chain([name]).collect();
        Cow::Owned(path.join(&b"::"[..]))
    }

    /// The names of the functions that an operation calls.
    pub(super) fn callees(&self, opcode: &[u8], symbols: &[&'a [u8]], text: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
        const LISTS: [&[u8]; 4] = [b"callee", b"decomposition", b"called_computation", b"called_computations"];
        let is_call = matches!(opcode, b"call" | b"func.call" | b"vhlo.call_v1");
        if !is_call && ![&b"composite"[..], b"custom_call", b"async_start"].iter().any(|end| opcode.ends_with(end)) {
            return Vec::new();
        }
        let mut named: Vec<&[u8]> = if is_call { symbols.to_vec() } else { Vec::new() };
        for list in LISTS.iter().filter_map(|key| attribute(text, key)) {
            let length = if list.starts_with(b"[") {
                balanced(list)
            } else {
                symbol_length(list.get(1..).unwrap_or_default()) + 1
            };
            let list = list.get(..length).unwrap_or_default();
            named.extend(memchr::memchr_iter(b'@', list).filter_map(|at| list.get(at..)));
        }
        named.into_iter().map(|name| self.qualified(symbol(name))).collect()
    }
}

fn module_name<'a>(read: &Operation<'a>) -> &'a [u8] {
    let named = if read.is_generic { attribute(read.text, b"sym_name") } else { read.symbols.first().copied() };
    named.map(symbol).unwrap_or_default()
}
