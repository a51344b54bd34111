"use strict";
/* What the gallery and one of its curves have in common: they follow what trains, and send their form without leaving. */

/* Asks at `address()` for what is new since the last answer and hands it to `show`, again and again while something
   trains; not in a tab that nobody sees. Gives the function that asks at once. */
function follow(form, address, show) {
  const trouble = document.getElementById("trouble");
  const PAUSE = 300; /* milliseconds from one question to the next */
  const AFTER_TROUBLE = 5000;
  let stamp = "";
  let timer = 0;
  let asked = null;
  let sending = false;
  let failure = "";

  function say(text) {
    trouble.textContent = text;
    trouble.hidden = !text;
  }

  async function ask() {
    clearTimeout(timer);
    if (document.hidden) return; /* asked when it is seen again */
    asked?.abort();
    const mine = (asked = new AbortController());
    try {
      const answer = await fetch(address(stamp), { signal: mine.signal });
      if (!answer.ok) throw new Error(await answer.text());
      const found = await answer.json();
      if (failure && trouble.textContent === failure) say("");
      if (found.stamp !== stamp) show(found, !stamp);
      stamp = found.stamp;
      if (found.busy) timer = setTimeout(ask, PAUSE);
    } catch (error) {
      if (mine.signal.aborted) return;
      say((failure = error instanceof TypeError ? "The server does not answer; asking again." : error.message));
      timer = setTimeout(ask, AFTER_TROUBLE);
    }
  }

  async function send(pressed) {
    const target = pressed.getAttribute("formaction") ?? form.action;
    try {
      const answer = await fetch(target, { method: "POST", body: new URLSearchParams(new FormData(form, pressed)), redirect: "manual" });
      say(answer.type === "opaqueredirect" || answer.ok ? "" : await answer.text());
    } catch {
      say("The server does not answer.");
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const pressed = event.submitter;
    if (sending || (pressed.dataset.confirm && !window.confirm(pressed.dataset.confirm))) return;
    sending = true;
    await send(pressed);
    sending = false;
    ask();
  });
  document.addEventListener("visibilitychange", ask);
  return ask;
}
