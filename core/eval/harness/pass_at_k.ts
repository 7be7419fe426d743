/**
 * pass@k: the chance that of k samples at least one is correct, estimated from n of them (Chen et
 * al. 2021, "Evaluating large language models trained on code").
 *
 * The estimate is 1 − C(n−c, k) / C(n, k), as a product that neither overflows nor loses digits.
 */

/** `c` of `n` samples are correct; defined for k up to n. */
export function passAtK(n: number, c: number, k: number): number {
  if (!(0 <= c && c <= n && 1 <= k && k <= n)) {
    throw new RangeError(`no pass@${k} of ${c} correct samples in ${n}`);
  }
  if (n - c < k) return 1;
  let allWrong = 1;
  for (let i = n - c + 1; i <= n; i++) allWrong *= 1 - k / i;
  return 1 - allWrong;
}
