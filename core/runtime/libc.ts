/** Name of the C library, by operating system; absent where none is used. */
export const LIBC: Readonly<Partial<Record<typeof Deno.build.os, string>>> = {
  linux: "libc.so.6",
  darwin: "libSystem.B.dylib",
};
