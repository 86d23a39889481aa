//! Where the differences of two arrays lie: spread over them, or together in a row or a tile.
//!
//! Rounding errors that happen to be large are spread. An error in a program hits a row or a tile.

/// Rows of a tile.
const TILE_ROWS: u64 = 8;
/// Columns of a tile, and the length of a row where the last axis is shorter.
const TILE_COLUMNS: u64 = 128;
/// How many standard deviations more than the expected number chance gives.
const DEVIATIONS: f64 = 4.0;

/// Differences in one part of an array.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// The sum of their squares.
    squares: f64,
    /// How many are beyond the tolerance.
    beyond: u64,
}

impl Part {
    fn add(&mut self, other: Self) {
        self.squares += other.squares;
        self.beyond += other.beyond;
    }
}

/// The most that any part has.
#[derive(Debug, Clone, Copy, Default)]
struct Most {
    mean_square: f64,
    beyond: u64,
}

impl Most {
    fn see(&mut self, part: Part, elements: u64) {
        self.mean_square = self.mean_square.max(part.squares / elements.max(1) as f64);
        self.beyond = self.beyond.max(part.beyond);
    }
}

/// The differences of two arrays by row of the last axis and by tile of the last two, from the first elements to the
/// last. It holds one row of tiles.
#[derive(Debug, Clone)]
pub(super) struct Tiles {
    row_length: u64,
    rows: u64,
    row: u64,
    /// The part of the row in the current tile: its number, its end, and what is in it.
    column: u64,
    end: u64,
    segment: Part,
    in_row: Part,
    /// By tile of the current row of tiles.
    in_tiles: Vec<Part>,
    of_rows: Most,
    of_tiles: Most,
}

impl Tiles {
    /// Nothing is seen yet of an array of these dimensions.
    pub(super) fn new(dims: &[u64]) -> Self {
        let row_length = dims.last().copied().filter(|last| *last >= TILE_COLUMNS).unwrap_or(TILE_COLUMNS);
        let elements = dims.iter().copied().fold(1, u64::saturating_mul);
        Self {
            row_length,
            rows: elements.div_ceil(row_length),
            row: 0,
            column: 0,
            end: TILE_COLUMNS,
            segment: Part::default(),
            in_row: Part::default(),
            in_tiles: Vec::new(),
            of_rows: Most::default(),
            of_tiles: Most::default(),
        }
    }

    /// Adds a difference, in units of what is allowed, of an element after those before it.
    pub(super) fn add(&mut self, element: u64, of_tolerance: f64) {
        if element >= self.end {
            self.close_segment();
            self.go_to(element);
        }
        self.segment.add(Part { squares: of_tolerance * of_tolerance, beyond: u64::from(of_tolerance > 1.0) });
    }

    fn close_segment(&mut self) {
        let segment = std::mem::take(&mut self.segment);
        self.in_row.add(segment);
        // bounded by the row's length over that of a tile's
        let tile = usize::try_from(self.column).unwrap_or(usize::MAX - 1);
        if tile >= self.in_tiles.len() {
            self.in_tiles.resize(tile + 1, Part::default());
        }
        self.in_tiles.iter_mut().skip(tile).take(1).for_each(|tile| tile.add(segment));
    }

    fn go_to(&mut self, element: u64) {
        let row = element / self.row_length;
        if row != self.row {
            self.close_row();
            if row / TILE_ROWS != self.row / TILE_ROWS {
                self.close_tiles();
            }
            self.row = row;
        }
        self.column = element % self.row_length / TILE_COLUMNS;
        let begin = row.saturating_mul(self.row_length);
        let column_end = (self.column + 1).saturating_mul(TILE_COLUMNS).min(self.row_length);
        self.end = begin.saturating_add(column_end);
    }

    fn close_row(&mut self) {
        self.of_rows.see(std::mem::take(&mut self.in_row), self.row_length);
    }

    fn close_tiles(&mut self) {
        let first = self.row / TILE_ROWS * TILE_ROWS;
        let rows = self.rows.saturating_sub(first).clamp(1, TILE_ROWS);
        for (column, tile) in (0..).step_by(TILE_COLUMNS as usize).zip(self.in_tiles.drain(..)) {
            let columns = self.row_length.saturating_sub(column).clamp(1, TILE_COLUMNS);
            self.of_tiles.see(tile, rows * columns);
        }
    }

    /// Nothing follows.
    pub(super) fn finish(mut self, elements: u64) -> Spread {
        self.close_segment();
        self.close_row();
        self.close_tiles();
        let tile = TILE_ROWS * self.row_length.min(TILE_COLUMNS);
        let rms = self.of_rows.mean_square.max(self.of_tiles.mean_square).sqrt();
        Spread {
            rms: if rms.is_finite() { rms } else { f64::MAX },
            parts: [(self.row_length, self.of_rows.beyond), (tile, self.of_tiles.beyond)],
            elements,
        }
    }
}

/// How the differences of two arrays are spread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    /// The largest root mean square of the differences of a row or tile, in units of what is allowed.
    pub(super) rms: f64,
    /// Elements of a row and of a tile, and the most of them beyond the tolerance.
    parts: [(u64, u64); 2],
    elements: u64,
}

impl Spread {
    /// Whether more of this many elements beyond the tolerance lie in one row or tile than chance gives.
    pub(super) fn is_clustered(&self, beyond: u64) -> bool {
        self.parts.iter().any(|&(size, most)| {
            let expected = beyond as f64 * (size as f64 / self.elements.max(1) as f64).min(1.0);
            most as f64 > 1.0 + expected + DEVIATIONS * expected.sqrt()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(dims: &[u64], places: &[u64]) -> (Spread, bool) {
        let mut tiles = Tiles::new(dims);
        places.iter().for_each(|&place| tiles.add(place, 2.0));
        let spread = tiles.finish(dims.iter().product());
        (spread, spread.is_clustered(places.len() as u64))
    }

    #[test]
    fn what_lies_in_one_row_or_tile_is_clustered_and_what_is_spread_is_not() {
        let dims = [512, 512];
        // one element of every 21st row, each in another column
        let scattered: Vec<u64> = (0..24).map(|n| n * 21 * 512 + (n * 197) % 512).collect();
        assert!(!spread(&dims, &scattered).1);
        let row: Vec<u64> = (0..24).map(|n| 77 * 512 + n * 20).collect();
        assert!(spread(&dims, &row).1, "one row");
        // three in each of eight rows, all within 128 columns
        let tile: Vec<u64> = (0..24).map(|n| (64 + n / 3) * 512 + 128 + (n % 3) * 40).collect();
        assert!(spread(&dims, &tile).1, "one tile");
        assert!(spread(&[1 << 18], &(4096..4120).collect::<Vec<u64>>()).1, "of one dimension");
        assert!(!spread(&dims, &[5]).1 && !spread(&dims, &[]).1);
        // a tile does not continue in the next group of rows
        assert!(!spread(&dims, &[7 * 512, 8 * 512]).1);
        assert!(spread(&[1 << 12, 512], &[3 * 512, 5 * 512]).1, "two of two million in one tile are no accident");
    }

    #[test]
    fn the_largest_mean_square_is_of_a_whole_row_or_tile() {
        // each difference is 2; half a row of 512
        let half: Vec<u64> = (512..768).collect();
        assert_eq!(spread(&[16, 512], &half).0.rms, 2.0_f64.sqrt());
        // a tile of 8 × 128, and the last one, of 2 × 44 in 10 × 300
        let tile: Vec<u64> = (8..16).flat_map(|row| (128..256).map(move |column| row * 512 + column)).collect();
        assert_eq!(spread(&[16, 512], &tile).0.rms, 2.0);
        let last: Vec<u64> = (8..10).flat_map(|row| (256..300).map(move |column| row * 300 + column)).collect();
        assert_eq!(spread(&[10, 300], &last).0.rms, 2.0);
        // short rows count by 128 elements: here two rows of 64
        assert_eq!(spread(&[64, 64], &(0..64).collect::<Vec<u64>>()).0.rms, 2.0_f64.sqrt());
        assert_eq!(spread(&[3], &[1]).0.rms, (4.0_f64 / 128.0).sqrt(), "of a small array by 128 as well");
    }
}
