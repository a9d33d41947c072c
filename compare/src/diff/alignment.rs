//! Alignment of two sequences by a shortest edit script (Myers, "An O(ND) Difference Algorithm and Its
//! Variations", 1986).
//!
//! This algorithm fits because steps of two runs are long (hundreds to tens of thousands of launches) and
//! nearly the same: the work is their length times the number of differences. That number is bounded, since
//! the memory grows with its square.

/// Maximum number of added and removed elements together; beyond it, the sequences are too different to
/// compare by position. The trace of the script takes 4 bytes times half the square of this: 8 MB.
pub const MOST_EDITS: usize = 2_000;

/// Returns the pairs of equal elements, increasing in both; `None` beyond [`MOST_EDITS`].
pub fn align(a: &[u32], b: &[u32]) -> Option<Vec<(usize, usize)>> {
    let prefix = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (&a[prefix..], &b[prefix..]);
    let suffix = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(x, y)| x == y).count();
    let (middle_a, middle_b) = (&rest_a[..rest_a.len() - suffix], &rest_b[..rest_b.len() - suffix]);
    let mut pairs: Vec<_> = (0..prefix).map(|index| (index, index)).collect();
    pairs.extend(shortest_edit(middle_a, middle_b)?.into_iter().map(|(x, y)| (x + prefix, y + prefix)));
    let (tail_a, tail_b) = (a.len() - suffix, b.len() - suffix);
    pairs.extend((0..suffix).map(|index| (tail_a + index, tail_b + index)));
    Some(pairs)
}

/// Diagonal `k` is `x - y`. After `d` edits only the diagonals of `-d..=d` in steps of two are reachable;
/// `reached[k + d]` is the furthest `x`.
fn shortest_edit(a: &[u32], b: &[u32]) -> Option<Vec<(usize, usize)>> {
    let mut trace: Vec<Vec<u32>> = Vec::new();
    for edits in 0..=(a.len() + b.len()).min(MOST_EDITS) {
        let mut reached = vec![0u32; edits + 1];
        for step in 0..=edits {
            let mut x = trace.last().map_or(0, |before| came_from(before, step, edits).1);
            let mut y = y_of(x, step, edits);
            while x < a.len() && y < b.len() && a[x] == b[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached[step] = x as u32;
            if x >= a.len() && y >= b.len() {
                trace.push(reached);
                return Some(walk_back(&trace, a.len(), b.len()));
            }
        }
        trace.push(reached);
    }
    None
}

/// `x - k`, with `k = 2 step - edits`. Saturates for diagonals outside the grid, which then count as fully
/// reached.
fn y_of(x: usize, step: usize, edits: usize) -> usize {
    (x + edits).saturating_sub(2 * step)
}

/// Entry of the previous row from which diagonal `step` of the row of `edits` was reached, and the `x` there
/// after the edit: from the diagonal below by removing an element of `a`, from the one above by adding one of
/// `b`.
fn came_from(before: &[u32], step: usize, edits: usize) -> (usize, usize) {
    let by_adding = |step: usize| (step, before[step] as usize);
    let by_removing = |step: usize| (step - 1, before[step - 1] as usize + 1);
    match step {
        0 => by_adding(0),
        _ if step == edits => by_removing(step),
        _ if before[step - 1] < before[step] => by_adding(step),
        _ => by_removing(step),
    }
}

/// Traces the edits from the ends of both sequences back to their starts.
fn walk_back(trace: &[Vec<u32>], a: usize, b: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut x, mut y) = (a, b);
    for edits in (1..trace.len()).rev() {
        let (from, begin) = came_from(&trace[edits - 1], (x + edits - y) / 2, edits);
        while x > begin {
            (x, y) = (x - 1, y - 1);
            pairs.push((x, y));
        }
        x = trace[edits - 1][from] as usize;
        y = y_of(x, from, edits - 1);
    }
    while x > 0 && y > 0 {
        (x, y) = (x - 1, y - 1);
        pairs.push((x, y));
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    /// Length of a longest common subsequence by the textbook table.
    fn longest_common(a: &[u32], b: &[u32]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (index, y) in b.iter().enumerate() {
                let above = row[index + 1];
                row[index + 1] = if x == y { diagonal + 1 } else { above.max(row[index]) };
                diagonal = above;
            }
        }
        row[b.len()]
    }

    #[test]
    fn the_example_of_the_paper() {
        let (a, b) = (ids("ABCABBA"), ids("CBABAC"));
        let pairs = align(&a, &b).unwrap();
        assert_eq!(pairs.len(), 4);
        assert!(pairs.iter().all(|&(x, y)| a[x] == b[y]));
    }

    #[test]
    fn pairs_are_equal_increasing_and_as_many_as_can_be() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..500 {
            let kinds = 1 + random(6);
            let [a, b]: [Vec<u32>; 2] = std::array::from_fn(|_| {
                let length = random(20);
                (0..length).map(|_| random(kinds)).collect()
            });
            let pairs = align(&a, &b).unwrap();
            assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{a:?} {b:?}");
            assert!(pairs.iter().all(|&(x, y)| a[x] == b[y]));
            assert_eq!(pairs.len(), longest_common(&a, &b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn too_many_differences_are_given_up() {
        let (a, b) = (vec![1; MOST_EDITS], vec![2; MOST_EDITS]);
        assert_eq!(align(&a, &b), None);
        assert_eq!(align(&a, &a).map(|pairs| pairs.len()), Some(MOST_EDITS));
    }
}
