const CHARTS = {
  pages: (host, space) => pagesChart(host, space),
  requests: requestsChart,
  tokens: tokensChart,
  lanes: lanesChart,
  hits: hitsChart,
  map: (host, space) => heatMap(host, space.map),
  lives: (host, space) => histograms(host, [["Lifetime of a page", space.lifetimes, "var(--private)"], ["Reuse gap of a cached page", space.reuse_gaps, "var(--cached-used)"]]),
  stays: (host) => histograms(host, [["Time of a request on its row", content.stays, "var(--violet)"]]),
};

for (const host of document.querySelectorAll("[data-chart]")) CHARTS[host.dataset.chart](host, content.spaces[Number(host.dataset.space)]);
document.documentElement.dataset.drawn = String(Math.round(performance.now()));
