//! Where the time went, as a bar.

use maud::{Markup, html};

use crate::report::format_ns;
use crate::report::time::parts;
use crate::tune::TimeBreakdown;

/// Draws a bar of the parts and their list; nothing if nothing was done.
pub(super) fn bar(time_breakdown: &TimeBreakdown) -> Markup {
    let total = time_breakdown.total().as_nanos() as f64;
    let mut at = 0.0;
    let parts = parts(time_breakdown).into_iter().enumerate().filter(|(_, part)| part.ns > 0).map(|(index, part)| {
        let (x, width) = (at, part.ns as f64 / total * 1000.0);
        at += width;
        (format!("part{index}"), format!("{x:.2}"), format!("{width:.2}"), part)
    });
    let parts: Vec<_> = parts.collect();
    html! {
        @if total > 0.0 {
            div.spent {
                svg.bar viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true" {
                    @for (class, x, width, _) in &parts {
                        rect class=(class) x=(x) y="0" width=(width) height="12" {}
                    }
                }
                ul {
                    li { strong { (format_ns(total)) } " in all" }
                    @for (class, _, _, part) in &parts {
                        li {
                            svg class={"key " (class)} viewBox="0 0 10 10" aria-hidden="true" {
                                rect width="10" height="10" rx="2" {}
                            }
                            (part.what) " " (format_ns(part.ns as f64)) (part.beside)
                        }
                    }
                }
            }
        }
    }
}
