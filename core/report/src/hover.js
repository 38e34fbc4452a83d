"use strict";
// The values at the step under the pointer, in all charts over steps at once.
(() => {
  const charts = [...document.querySelectorAll(".chart")].map((figure) => ({
    data: JSON.parse(figure.querySelector("script").textContent),
    plot: figure.querySelector(".plot"),
    cursor: figure.querySelector(".cursor"),
    atStep: figure.querySelector(".at-step"),
    values: [...figure.querySelectorAll(".legend b")],
  }));
  const nearest = (steps, step) => {
    let [low, high] = [0, steps.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle;
    }
    return step - steps[low] <= steps[high] - step ? low : high;
  };
  const show = (step, over) => {
    for (const { data, cursor, atStep, values } of charts.filter((chart) => chart.data.over === over)) {
      cursor.hidden = atStep.hidden = step === null;
      const [first, last] = data.x;
      if (step !== null) {
        cursor.style.left = (100 * (step - first)) / (last - first) + "%";
        atStep.textContent = over + " " + step;
      }
      data.curves.forEach((curve, index) => {
        const at = step === null ? -1 : nearest(curve.x, step);
        const far = at < 0 || (curve.style.match(/points|others/) && Math.abs(curve.x[at] - step) > (last - first) / 40);
        values[index].textContent = far ? "" : (curve.y[at] ?? "not a number") + (data.unit ? " " + data.unit : "");
      });
    }
  };
  for (const { data, plot } of charts) {
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      show(Math.round(data.x[0] + share * (data.x[1] - data.x[0])), data.over);
    });
    plot.addEventListener("pointerleave", () => show(null, data.over));
  }
})();
