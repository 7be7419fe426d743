// Nothing: what a process costs at least.
export {};
