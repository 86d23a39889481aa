//! Random numbers that are the same in every run and on every machine: seeded choices and normal numbers.

mod draw;
mod normals;

pub(crate) use draw::Draw;
pub(crate) use normals::Normals;
