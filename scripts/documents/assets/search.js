// Search over SEARCH_INDEX (rows of url, page, heading, text), the theme switch, and the menu on narrow screens.
"use strict";

function words(text) {
  return text.toLowerCase().match(/[\w.]+/g) || [];
}

// A section must have every word of the query; words in headings and titles count more than words in the text.
function search(index, query, limit) {
  var wanted = words(query);
  if (!wanted.length) return [];
  var found = [];
  index.forEach(function (row) {
    var heading = row[2].toLowerCase(), page = row[1].toLowerCase(), text = row[3].toLowerCase(), score = 0;
    var has = wanted.every(function (word) {
      var points = 0;
      if (heading === word) points += 60;
      if (heading.indexOf(word) >= 0) points += 20;
      if (page.indexOf(word) >= 0) points += 8;
      var at = text.indexOf(word);
      if (at >= 0) points += 4 + Math.min(4, text.split(word).length - 1);
      score += points;
      return points > 0;
    });
    if (has) found.push({ score: score, url: row[0], page: row[1], heading: row[2], text: snippet(row[3], wanted) });
  });
  found.sort(function (a, b) { return b.score - a.score; });
  return found.slice(0, limit || 20);
}

function snippet(text, wanted) {
  var lower = text.toLowerCase(), at = -1;
  wanted.forEach(function (word) { if (at < 0) at = lower.indexOf(word); });
  var start = Math.max(0, at - 60);
  return (start ? "…" : "") + text.slice(start, start + 180) + (text.length > start + 180 ? "…" : "");
}

function element(tag, text, parent) {
  var made = document.createElement(tag);
  made.textContent = text;
  parent.appendChild(made);
  return made;
}

function show(box, top, results, query) {
  box.textContent = "";
  box.hidden = !query;
  if (query && !results.length) element("p", "Nothing found for “" + query + "”.", box);
  results.forEach(function (one) {
    var link = element("a", "", box);
    link.href = top + "/" + one.url;
    element("strong", one.heading === one.page ? one.page : one.page + " › " + one.heading, link);
    element("span", one.text, link);
  });
}

function start() {
  var input = document.getElementById("search"), box = document.getElementById("results");
  var top = document.body.dataset.top;
  function update() { show(box, top, search(SEARCH_INDEX, input.value), input.value.trim()); }
  input.addEventListener("input", update);
  input.addEventListener("keydown", function (event) {
    var first = box.querySelector("a");
    if (event.key === "Enter" && first) first.click();
    if (event.key === "Escape") { input.value = ""; update(); }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== input) { event.preventDefault(); input.focus(); }
  });
  document.getElementById("theme").addEventListener("click", function () {
    var root = document.documentElement, dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { /* no storage: for this page alone */ }
  });
  if (window.matchMedia("(max-width: 60rem)").matches) document.querySelector("details.menu").open = false;
}

if (typeof document === "undefined") module.exports = { search: search };
else start();
