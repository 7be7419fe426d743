/** Permissions of a worker thread that only computes: nothing but what its caller adds. */
export const NO_PERMISSIONS = {
  env: false,
  ffi: false,
  import: false,
  net: false,
  run: false,
  sys: false,
  write: false,
} as const;
