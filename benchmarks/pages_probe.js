"use strict";
/* Put into every page before its own scripts: says when something was painted, by the page's own clock.

   probe.when(name, test): marks[name] is the time of the first frame after one in which the test held.
   probe.after(types, test): the same from the last trusted input of these types on, with the longest frame between. */
window.probe = (() => {
  const marks = {};
  const waiting = new Map();
  const events = [];
  let last = 0;
  let longest = 0;
  let input = null;
  let types = [];

  function frame(now) {
    if (input !== null) longest = Math.max(longest, now - Math.max(last, input));
    last = now;
    for (const [name, wait] of waiting) {
      if (wait.held) {
        waiting.delete(name);
        marks[name] = now;
        wait.done?.(now);
      } else if (!wait.needs || input !== null) {
        try { wait.held = Boolean(wait.test()); } catch { wait.held = false; }
      }
    }
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);

  for (const type of ["mousemove", "mouseup", "keydown", "click", "dblclick", "wheel", "input"]) {
    document.addEventListener(type, (event) => {
      if (event.isTrusted && types.includes(type)) input = event.timeStamp;
    }, { capture: true, passive: true });
  }
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) events.push([entry.name, entry.startTime, entry.duration]);
  }).observe({ type: "event", durationThreshold: 16, buffered: true });

  return {
    marks, events,
    when: (name, test) => waiting.set(name, { test }),
    arm(wanted, tests) {
      types = wanted;
      input = null;
      longest = 0;
      events.length = 0;
      this.armed = Promise.all(Object.entries(tests).map(([name, test]) => new Promise((resolve) => {
        waiting.set(`armed ${name}`, { test, needs: true, done: (now) => resolve([name, now]) });
      })));
    },
    async told() {
      const found = Object.fromEntries((await this.armed).map(([name, now]) => [name, now - input]));
      const begun = input;
      await new Promise((resolve) => setTimeout(resolve, 250)); /* entries come a little later */
      const paints = events.filter(([, start]) => start >= begun - 60).map(([, , duration]) => duration);
      types = [];
      return { ...found, frame: longest, paint: paints.length ? Math.max(...paints) : null };
    },
  };
})();
