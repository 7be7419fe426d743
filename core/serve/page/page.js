"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const ids = ["log", "form", "input", "model", "streams", "speed", "legend"];
  const [log, form, input, model, streams, speed, legend] = ids.map(at);
  /** The conversation; a switch of the model keeps it. */
  const messages = [];
  /** As the server lists them. */
  let models = [];
  let running;

  const headers = () => {
    const key = at("key").value;
    return key === "" ? {} : { authorization: `Bearer ${key}` };
  };
  /** Names of streams, as in every output. */
  const labelOf = (p, count) => count <= 26 ? String.fromCharCode(65 + p) : String(p + 1);

  function addMessage(role, text) {
    const element = document.createElement("div");
    element.className = `message ${role}`;
    const name = document.createElement("b");
    name.textContent = role === "assistant" ? model.value : role;
    element.append(name);
    const write = writer(element);
    for (const line of text.match(/.*\n|.+/g) ?? []) write(line);
    log.append(element);
    log.scrollTop = log.scrollHeight;
    return { element, write };
  }

  /** Writes texts as spans; lines between ``` fences form a block of code. */
  function writer(message) {
    let block, line = "", ofLine = [], closes = false;
    const isFence = () => /^ *```/.test(line);
    const endLine = (token) => {
      if (closes) token.textContent = token.textContent.replace("\n", "");
      else if (isFence()) {
        block = document.createElement("div");
        block.className = "code";
        message.append(block);
      }
      [line, ofLine, closes] = ["", [], false];
    };
    return (text) => {
      const token = document.createElement("span");
      token.textContent = text;
      (block ?? message).append(token);
      for (const [i, part] of text.split("\n").entries()) {
        if (i > 0) endLine(token);
        if (part !== "") ofLine.push(token);
        line += part;
        if (!isFence()) continue;
        for (const one of ofLine) one.textContent = one.textContent.replaceAll("`", "");
        if (block) message.append(...ofLine);
        closes ||= block !== undefined;
        block = undefined;
      }
      return token;
    };
  }

  /** Letters and colours of the streams, with the weights of one token. */
  function showLegend(count, weights) {
    legend.hidden = count < 2;
    legend.replaceChildren(
      ...Array.from({ length: count }, (_, p) => {
        const entry = document.createElement("li"), name = document.createElement("b");
        name.className = `s${p % 8}`;
        name.textContent = labelOf(p, count);
        entry.append(name, weights ? ` ${weights[p].toFixed(4)}` : "");
        return entry;
      }),
    );
  }

  /** Streams that are asked for, and the weights of those that have some. */
  function wanted() {
    if (streams.value === "auto") {
      return { streams: "auto", weights: models.some(({ parscale }) => parscale.weights) };
    }
    const count = Number(streams.value);
    const fitting = models.filter(({ parscale }) => parscale.streams === count);
    return { streams: count, weights: fitting.every(({ parscale }) => parscale.weights) };
  }

  /** Shows the streams of the next answer; of `auto` as many as there may be. */
  function showStreams() {
    const { streams: count, weights } = wanted();
    const most = Math.max(...models.map(({ parscale }) => parscale.streams));
    showLegend(!weights ? 1 : count === "auto" ? most : count);
  }

  /** Marks a token with the letter and colour of the stream with the largest weight. */
  function mark(token, text, weights) {
    const count = weights.length, most = Math.max(...weights), winner = weights.indexOf(most);
    const strength = Math.round(9 * Math.max(0, (most * count - 1) / (count - 1)));
    const width = [...text].length === 1 ? " narrow" : "";
    token.className = `s${winner % 8} w${strength}${width}`;
    token.tabIndex = 0;
    token.dataset.stream = labelOf(winner, count);
    token.setAttribute("aria-label", `${text}, stream ${token.dataset.stream}`);
    token.addEventListener("mouseenter", () => showLegend(count, weights));
    token.addEventListener("focus", () => showLegend(count, weights));
  }

  async function* frames(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const frame = text.slice(0, end);
        if (frame.startsWith("data: ") && frame !== "data: [DONE]") {
          yield JSON.parse(frame.slice(6));
        }
      }
    }
  }

  async function ask() {
    const { element, write } = addMessage("assistant", ""), name = element.firstChild;
    running = new AbortController();
    at("send").disabled = true;
    at("stop").disabled = false;
    let answer = "", count = 0, began = 0;
    try {
      const response = await fetch("/v1/chat/completions", {
        method: "POST",
        headers: { "content-type": "application/json", ...headers() },
        signal: running.signal,
        body: JSON.stringify({
          model: model.value,
          messages,
          stream: true,
          temperature: Number(at("temperature").value),
          max_tokens: Number(at("tokens").value),
          parscale: wanted(),
        }),
      });
      if (!response.ok) throw new Error((await response.json()).error.message);
      for await (const frame of frames(response)) {
        if (frame.error) throw new Error(frame.error.message);
        if (frame.parscale) name.textContent = `${frame.model}, P = ${frame.parscale.streams}`;
        const [choice] = frame.choices;
        if (!choice) continue;
        const text = choice.delta.content ?? "";
        if (text === "") continue;
        answer += text;
        const token = write(text), weights = choice.parscale?.tokens.at(-1)?.weights;
        if (weights?.length > 1) {
          element.classList.add("tokens");
          mark(token, text, weights);
        }
        log.scrollTop = log.scrollHeight;
        if (count++ === 0) began = performance.now();
        else {
          const rate = (count - 1) / (performance.now() - began) * 1000;
          speed.textContent = `${rate.toFixed(1)} tok/s`;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") addMessage("error", error.message);
    }
    // Nothing to answer is left where the conversation was cleared meanwhile.
    if (messages.length > 0) messages.push({ role: "assistant", content: answer });
    running = undefined;
    at("send").disabled = false;
    at("stop").disabled = true;
    input.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === "" || running) return;
    input.value = "";
    messages.push({ role: "user", content: text });
    addMessage("user", text);
    ask();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  at("stop").addEventListener("click", () => running?.abort());
  addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  at("clear").addEventListener("click", () => {
    running?.abort();
    messages.length = 0;
    log.replaceChildren();
    showStreams();
  });

  /** Lists the models; asks for a key where the server wants one, and again while it loads. */
  async function list() {
    const response = await fetch("/v1/models", { headers: headers() });
    if (response.status === 401) at("key-label").hidden = false;
    if (response.status === 503) setTimeout(list, 1000);
    if (!response.ok) return;
    models = (await response.json()).data;
    model.replaceChildren(
      ...models.map(({ id, parscale }) => new Option(`${id} (P = ${parscale.streams})`, id)),
    );
    const counts = [...new Set(models.map(({ parscale }) => parscale.streams))];
    counts.sort((a, b) => a - b);
    const choices = counts.length > 1 ? [...counts, "auto"] : counts;
    streams.replaceChildren(...choices.map((one) => new Option(one, one)));
    at("streams-label").hidden = counts.length < 2;
    useDefault();
  }
  /** Selects the model's default number of streams. */
  function useDefault() {
    const { parscale } = models.find(({ id }) => id === model.value);
    streams.value = parscale.default_streams;
    showStreams();
  }
  model.addEventListener("change", useDefault);
  streams.addEventListener("change", showStreams);
  at("key").addEventListener("change", list);
  list();
})();
