// Sine and cosine of any float to 1 unit in the last place.
//
// Computed in double by Taylor series. No sinf or cosf, whose reduction of large angles would need
// memory on the stack. Angles are positions of tokens times a frequency, so they are large, and
// there are only a few kilobytes of them per program.
#pragma once

// Angle less a whole number of quarter turns, in [−π/4, π/4], and the number of them mod 4.
__device__ inline double reduceAngle(float angle, int& quarter) {
  const double turns = rint(angle * 0.63661977236758134308);  // 2/π
  quarter = (int)((long long)turns & 3);
  return (double)angle - turns * 1.57079632679489661923;  // π/2; angles stay far below 2⁵³ ulp
}

// The cosine where `shift` is 1, the sine where it is 0: one is the other a quarter turn later.
__device__ inline float sineOf(float angle, int shift) {
  int quarter;
  const double r = reduceAngle(angle, quarter), s = r * r;
  quarter = (quarter + shift) & 3;
  double sine = 1.0 / 6227020800.0, cosine = -1.0 / 87178291200.0;  // 1/13!, −1/14!
  sine = sine * s - 1.0 / 39916800.0, cosine = cosine * s + 1.0 / 479001600.0;
  sine = sine * s + 1.0 / 362880.0, cosine = cosine * s - 1.0 / 3628800.0;
  sine = sine * s - 1.0 / 5040.0, cosine = cosine * s + 1.0 / 40320.0;
  sine = sine * s + 1.0 / 120.0, cosine = cosine * s - 1.0 / 720.0;
  sine = sine * s - 1.0 / 6.0, cosine = cosine * s + 1.0 / 24.0;
  sine = (sine * s + 1.0) * r, cosine = (cosine * s - 0.5) * s + 1.0;
  const float result = (float)(quarter & 1 ? cosine : sine);
  return quarter & 2 ? -result : result;
}
