"use strict";
/* A curve without its name: choose, then see where it shows. */
(() => {
  const quiz = document.getElementById("quiz");
  const place = document.getElementById("asked");
  const options = document.getElementById("options");
  const told = document.getElementById("told");
  const next = document.getElementById("next");
  const score = document.getElementById("score");
  let question = null;
  let shown = null;
  let answered = false;
  let right = 0;
  let all = 0;

  function draw(chart) {
    shown = chart;
    const fitting = marking.fit(chart, place);
    Plotly.react(place, fitting.data, charting.dressed(fitting, place.clientWidth), charting.config);
  }

  async function ask() {
    const seed = Math.floor(Math.random() * 1e9);
    try {
      const answer = await fetch(`/api/lab/curves/quiz?${new URLSearchParams({ seed: String(seed), last: question?.run ?? "" })}`);
      if (!answer.ok) throw new Error(await answer.text());
      question = await answer.json();
    } catch (error) {
      told.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
      return;
    }
    answered = false;
    told.replaceChildren();
    next.hidden = true;
    options.replaceChildren(...question.options.map((option, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "option";
      button.dataset.name = option.name;
      const key = document.createElement("span");
      key.className = "key";
      key.textContent = String(number + 1);
      button.append(key, option.title);
      button.addEventListener("click", () => choose(button));
      return button;
    }));
    draw(question.chart);
    quiz.setAttribute("aria-busy", "false");
  }

  function choose(button) {
    if (answered) return;
    answered = true;
    all += 1;
    const is = button.dataset.name === question.answer;
    right += Number(is);
    for (const each of options.children) {
      each.disabled = true;
      if (each.dataset.name === question.answer) each.classList.add("right");
      else if (each === button) each.classList.add("wrong");
    }
    const verdict = document.createElement("p");
    const strong = document.createElement("strong");
    const name = question.options.find((option) => option.name === question.answer).title;
    strong.textContent = is ? `Right: ${name.toLowerCase()}.` : `No, this one is: ${name.toLowerCase()}.`;
    verdict.append(strong);
    told.innerHTML = question.said; /* made and escaped by our own server */
    told.prepend(verdict);
    draw(question.marked);
    place.setAttribute("aria-label", question.marked.title);
    score.textContent = `${right} of ${all} right`;
    next.hidden = false;
    next.focus({ preventScroll: true });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const button = options.children[Number(event.key) - 1];
    if (button) { event.preventDefault(); choose(button); }
  });
  next.addEventListener("click", ask);
  for (const query of [charting.dark, marking.narrow]) query.addEventListener("change", () => shown && draw(shown));
  document.addEventListener("DOMContentLoaded", ask); /* by then Plotly's script has run */
})();
