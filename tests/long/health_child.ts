/** Asks for the URL of its argument again and again; told to end, it prints the times in milliseconds. */
const times: number[] = [];
Deno.addSignalListener("SIGTERM", () => {
  console.log(JSON.stringify(times));
  Deno.exit();
});
while (true) {
  const began = performance.now();
  const response = await fetch(Deno.args[0]!);
  await response.body?.cancel();
  times.push(performance.now() - began);
  if (times.length === 1) console.log("ready");
  await new Promise((resolve) => setTimeout(resolve, 5));
}
