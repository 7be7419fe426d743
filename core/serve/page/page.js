"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const ids = ["log", "form", "input", "system", "model", "streams", "speed"];
  const [log, form, input, system, model, streams, speed] = ids.map(at);
  /** HTML in a text stays text, and pictures, which would be fetched, are links. */
  const markdown = markdownit({ breaks: true }).disable("image");
  markdown.renderer.rules.link_open = (tokens, i, options, _, self) => {
    tokens[i].attrSet("target", "_blank");
    return self.renderToken(tokens, i, options);
  };
  /** The conversation, which a switch of the model and a reload keep: role, content, name and note. */
  const messages = JSON.parse(sessionStorage.getItem("messages") ?? "[]");
  const keep = () => sessionStorage.setItem("messages", JSON.stringify(messages));
  /** As the server lists them. */
  let models = [];
  let running;

  const headers = () => {
    const key = at("key").value;
    return key === "" ? {} : { authorization: `Bearer ${key}` };
  };
  /** Names of streams, as in every output. */
  const labelOf = (p, count) => count <= 26 ? String.fromCharCode(65 + p) : String(p + 1);

  function elementOf(tag, className, text = "") {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return element;
  }

  /** Adds a message with its name, the text as Markdown, and below it a note and a button that copies. */
  function addMessage({ role, content, name = role, note = "" }) {
    const element = elementOf("div", `message ${role}`);
    const title = elementOf("b", "", name), rendered = elementOf("div", "rendered");
    const foot = elementOf("div", "foot"), noted = elementOf("span", "", note);
    const copy = elementOf("button", "copy", "Copy");
    copy.type = "button";
    copy.hidden = !navigator.clipboard;
    copy.addEventListener("click", () => navigator.clipboard.writeText(content));
    foot.append(noted, copy);
    element.append(title, rendered, foot);
    log.append(element);
    const show = (text) => {
      content = text;
      if (role === "assistant") rendered.innerHTML = markdown.render(text);
      else rendered.textContent = text;
      log.scrollTop = log.scrollHeight;
    };
    show(content);
    return { title, rendered, noted, show };
  }

  /** Letters and colours of the streams, with the weights of one token. */
  function showLegend(count, weights) {
    at("legend").hidden = at("letters-label").hidden = count < 2;
    at("weights").replaceChildren(
      ...Array.from({ length: count }, (_, p) => {
        const entry = document.createElement("li");
        entry.append(elementOf("b", `s${p % 8}`, labelOf(p, count)));
        if (weights) entry.append(` ${weights[p].toFixed(4)}`);
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

  /** A token with the letter and colour of the stream with the largest weight. */
  function tokenOf(text, weights) {
    const count = weights.length, most = Math.max(...weights), winner = weights.indexOf(most);
    const strength = Math.round(9 * Math.max(0, (most * count - 1) / (count - 1)));
    const width = [...text].length === 1 ? " narrow" : "";
    const token = elementOf("span", `s${winner % 8} w${strength}${width}`, text);
    token.tabIndex = 0;
    token.dataset.stream = labelOf(winner, count);
    token.setAttribute("aria-label", `${text}, stream ${token.dataset.stream}`);
    token.addEventListener("mouseenter", () => showLegend(count, weights));
    token.addEventListener("focus", () => showLegend(count, weights));
    return token;
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

  /** The conversation as the server takes it. */
  function sent() {
    const text = system.value.trim();
    const first = text === "" ? [] : [{ role: "system", content: text }];
    return [...first, ...messages.map(({ role, content }) => ({ role, content }))];
  }

  async function ask() {
    const { title, rendered, noted, show } = addMessage({
      role: "assistant",
      content: "",
      name: model.value,
    });
    running = new AbortController();
    at("send").disabled = true;
    at("stop").disabled = false;
    let tokens, answer = "", count = 0, began = 0;
    try {
      const limit = Number(at("tokens").value);
      const response = await fetch("/v1/chat/completions", {
        method: "POST",
        headers: { "content-type": "application/json", ...headers() },
        signal: running.signal,
        body: JSON.stringify({
          model: model.value,
          messages: sent(),
          stream: true,
          temperature: Number(at("temperature").value),
          max_tokens: limit,
          parscale: wanted(),
        }),
      });
      if (!response.ok) throw new Error((await response.json()).error.message);
      for await (const frame of frames(response)) {
        if (frame.error) throw new Error(frame.error.message);
        if (frame.parscale) title.textContent = `${frame.model}, P = ${frame.parscale.streams}`;
        const [choice] = frame.choices;
        if (choice?.finish_reason === "length") noted.textContent = `stopped at ${limit} tokens`;
        const text = choice?.delta.content ?? "";
        if (text === "") continue;
        answer += text;
        const weights = choice.parscale?.tokens.at(-1)?.weights;
        if (weights?.length > 1) {
          if (!tokens) rendered.before(tokens = elementOf("div", "tokens"));
          tokens.append(tokenOf(text, weights));
        }
        show(answer);
        if (count++ === 0) began = performance.now();
        else {
          const rate = (count - 1) / (performance.now() - began) * 1000;
          speed.textContent = `${rate.toFixed(1)} tok/s`;
        }
      }
    } catch (error) {
      if (error.name === "AbortError") noted.textContent = "stopped";
      else addMessage({ role: "error", content: error.message });
    }
    // Nothing to answer is left where the conversation was cleared meanwhile.
    if (messages.length > 0) {
      const [name, note] = [title.textContent, noted.textContent];
      messages.push({ role: "assistant", content: answer, name, note });
    }
    keep();
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
    keep();
    addMessage(messages.at(-1));
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
    keep();
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
  for (const message of messages) addMessage(message);
  list();
})();
