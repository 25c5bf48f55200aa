/* Draws the charts of the dashboard. The server sends for each: its shape ("bars" and "lines" over time,
   "ranking"), the unit of its numbers, its labels, and its series with a style, a label and values. Colors are
   those of dashboard.css in the theme of the moment; patterns, dashes and the shapes of points say the same. */
"use strict";

(function () {
    const source = document.getElementById("anvil-charts");
    const page = document.querySelector(".anvil-dashboard");
    if (!source || !page || !window.Chart) {
        return;
    }
    const specs = JSON.parse(source.textContent);
    const language = document.documentElement.lang || undefined;
    const POINTS = ["circle", "triangle", "rect", "rectRot", "star", "cross"];
    const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [12, 4], [4, 4]];
    const PATTERNS = {
        failed: "up", cancelled: "dots", suspended: "down", paused: "cross", running: "flat", queued: "upright",
        color2: "up", color3: "dots", color4: "down", color5: "cross", color6: "flat",
    };
    const LABEL_LIMIT = 22;
    let drawn = [];

    // Numbers and moments in words.

    function formatter(options) {
        const format = new Intl.NumberFormat(language, options);
        return (value) => format.format(value);
    }

    const count = formatter({maximumFractionDigits: 0});
    const short = formatter({notation: "compact", maximumFractionDigits: 1});
    const share = formatter({style: "percent", maximumFractionDigits: 1});
    const cents = formatter({style: "currency", currency: "USD", currencyDisplay: "narrowSymbol"});
    const parts = formatter({
        style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", maximumFractionDigits: 4,
    });

    function money(value) {
        return value !== 0 && Math.abs(value) < 1 ? parts(value) : cents(value);
    }

    function unit(name, places) {
        return formatter({style: "unit", unit: name, unitDisplay: "narrow", maximumFractionDigits: places});
    }

    const LENGTHS = [[86400, unit("day", 1)], [3600, unit("hour", 1)], [60, unit("minute", 1)], [1, unit("second", 1)]];
    const moments = unit("second", 2);

    function seconds(value) {
        const found = LENGTHS.find(([length]) => value >= length);
        return found ? found[1](value / found[0]) : moments(value);
    }

    // Where the axis of a longest duration has its lines.
    const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

    function step(longest) {
        return STEPS.find((each) => longest / each <= 4) || Math.ceil(longest / 4 / 86400) * 86400;
    }

    const WORDS = {count, share, money, seconds};
    const AXIS = {count: (value) => (Number.isInteger(value) ? short(value) : ""), share, money, seconds};

    function moment(options) {
        const format = new Intl.DateTimeFormat(language, {timeZone: "UTC", ...options});
        return (label) => format.format(new Date(label));
    }

    const TIMES = {
        day: {axis: moment({month: "short", day: "numeric"}), title: moment({dateStyle: "full"})},
        hour: {
            axis: moment({hour: "numeric", minute: "2-digit"}),
            title: moment({weekday: "short", month: "short", day: "numeric", hour: "numeric", minute: "2-digit"}),
        },
    };

    // Colors and patterns.

    function colors() {
        const style = getComputedStyle(page);
        return (name) => style.getPropertyValue(`--anvil-${name}`).trim() || "#888";
    }

    function pattern(kind, color, gap) {
        const tile = document.createElement("canvas");
        const size = 8;
        tile.width = tile.height = size;
        const pen = tile.getContext("2d");
        pen.fillStyle = color;
        pen.fillRect(0, 0, size, size);
        if (!kind) {
            return color;
        }
        pen.strokeStyle = pen.fillStyle = gap;
        pen.globalAlpha = 0.5;
        pen.lineWidth = 1.5;
        const lines = {
            up: [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
            down: [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2]],
            flat: [[0, 2, 8, 2], [0, 6, 8, 6]],
            upright: [[2, 0, 2, 8], [6, 0, 6, 8]],
            cross: [[0, 4, 8, 4], [4, 0, 4, 8]],
        }[kind];
        pen.beginPath();
        for (const [x, y, toX, toY] of lines || []) {
            pen.moveTo(x, y);
            pen.lineTo(toX, toY);
        }
        pen.stroke();
        if (kind === "dots") {
            for (const [x, y] of [[2, 2], [6, 6]]) {
                pen.beginPath();
                pen.arc(x, y, 1.3, 0, 7);
                pen.fill();
            }
        }
        return pen.createPattern(tile, "repeat");
    }

    // Charts.

    function shortened(text) {
        return text.length > LABEL_LIMIT ? `${text.slice(0, LABEL_LIMIT - 1)}…` : text;
    }

    function datasets(spec, color) {
        return spec.series.map((series, place) => {
            const own = color(series.style);
            const common = {label: series.label, data: series.values};
            if (spec.shape === "lines") {
                return {
                    ...common,
                    backgroundColor: own,
                    borderColor: own,
                    borderDash: DASHES[place % DASHES.length],
                    borderWidth: 2,
                    clip: 8,
                    pointRadius: spec.labels.length > 45 ? 0 : 3,
                    pointHoverRadius: 5,
                    pointStyle: POINTS[place % POINTS.length],
                    spanGaps: true,
                };
            }
            return {
                ...common,
                backgroundColor: pattern(PATTERNS[series.style], own, color("card")),
                borderColor: own,
                borderWidth: 1,
                maxBarThickness: spec.shape === "ranking" ? 18 : 40,
                stack: spec.shape === "bars" ? "all" : undefined,
            };
        });
    }

    // The number at the end of each bar of a ranking.
    const numbers = {
        id: "numbers",
        afterDatasetsDraw(chart, _args, options) {
            const pen = chart.ctx;
            pen.save();
            pen.font = `11px ${Chart.defaults.font.family}`;
            pen.fillStyle = options.color;
            pen.textBaseline = "middle";
            chart.data.datasets.forEach((set, index) => {
                chart.getDatasetMeta(index).data.forEach((bar, place) => {
                    if (set.data[place] !== null) {
                        pen.fillText(options.words(set.data[place]), bar.x + 5, bar.y);
                    }
                });
            });
            pen.restore();
        },
    };

    function axes(spec, color) {
        const ticks = {color: color("quiet"), maxRotation: 0, autoSkipPadding: 16};
        const line = {color: color("line")};
        const values = {
            beginAtZero: true,
            border: {display: false},
            grid: line,
            ticks: {...ticks, callback: AXIS[spec.unit], maxTicksLimit: 6},
        };
        if (spec.unit === "share") {
            values.max = 1;
        }
        const names = {border: line, grid: {display: false}, ticks};
        if (spec.shape === "ranking") {
            values.ticks.maxTicksLimit = 5;
            if (spec.unit === "seconds") {
                values.ticks.stepSize = step(Math.max(...spec.series.flatMap((series) => series.values)));
            }
            names.ticks = {...ticks, autoSkip: false, callback: (_value, place) => shortened(spec.labels[place])};
            return {x: values, y: names};
        }
        const axis = TIMES[spec.times].axis;
        names.ticks = {...ticks, callback: (_value, place) => axis(spec.labels[place])};
        names.stacked = values.stacked = spec.shape === "bars";
        return {x: names, y: values};
    }

    function title(spec, place) {
        return spec.times ? TIMES[spec.times].title(spec.labels[place]) : spec.labels[place];
    }

    function draw(canvas, color) {
        const spec = specs[canvas.dataset.chart];
        const words = WORDS[spec.unit];
        const isRanking = spec.shape === "ranking";
        if (isRanking) {
            const bars = spec.labels.length * (spec.series.length > 1 ? 40 : 30);
            canvas.parentElement.style.blockSize = `${bars + 70}px`;
        }
        return new Chart(canvas, {
            type: spec.shape === "lines" ? "line" : "bar",
            data: {labels: spec.labels, datasets: datasets(spec, color)},
            plugins: isRanking ? [numbers] : [],
            options: {
                animation: false,
                indexAxis: isRanking ? "y" : "x",
                interaction: {mode: "index", axis: isRanking ? "y" : "x", intersect: false},
                layout: {padding: {right: isRanking ? 64 : 4}},
                maintainAspectRatio: false,
                scales: axes(spec, color),
                plugins: {
                    legend: {
                        display: spec.series.length > 1,
                        position: "bottom",
                        align: "start",
                        onClick: () => {},
                        labels: {
                            boxWidth: 14, boxHeight: spec.shape === "lines" ? 8 : 14, color: color("fg"), padding: 14,
                            usePointStyle: spec.shape === "lines",
                        },
                    },
                    numbers: {color: color("fg"), words},
                    tooltip: {
                        filter: (item) => item.raw !== null && (item.raw !== 0 || spec.shape !== "bars"),
                        callbacks: {
                            title: (items) => (items.length ? title(spec, items[0].dataIndex) : ""),
                            label: (item) => ` ${item.dataset.label}: ${words(item.raw)}`,
                        },
                    },
                },
            },
        });
    }

    function redraw() {
        const color = colors();
        Chart.defaults.font.family = getComputedStyle(page).fontFamily;
        drawn.forEach((chart) => chart.destroy());
        drawn = Array.from(page.querySelectorAll("canvas[data-chart]"), (canvas) => draw(canvas, color));
    }

    // With the arrow keys from point to point; what is there is said, too.
    function walk(event) {
        const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
        const chart = Chart.getChart(event.target);
        if (!chart || (!step && event.key !== "Escape")) {
            return;
        }
        event.preventDefault();
        const spec = specs[event.target.dataset.chart];
        const before = chart.getActiveElements()[0];
        let place = step > 0 ? 0 : spec.labels.length - 1;
        if (before) {
            place = Math.min(Math.max(before.index + (step || 0), 0), spec.labels.length - 1);
        }
        const active = step
            ? spec.series.flatMap((series, index) => (series.values[place] === null ? [] : [{datasetIndex: index, index: place}]))
            : [];
        chart.setActiveElements(active);
        chart.tooltip.setActiveElements(active, {x: 0, y: 0});
        chart.update("none");
        const said = active.map(({datasetIndex}) => {
            const series = spec.series[datasetIndex];
            return `${series.label}: ${WORDS[spec.unit](series.values[place])}`;
        });
        event.target.nextElementSibling.textContent = step ? [title(spec, place), ...said].join(", ") : "";
    }

    redraw();
    page.addEventListener("keydown", walk);
    new MutationObserver(redraw).observe(document.documentElement, {attributeFilter: ["data-theme", "class"]});
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
        window.matchMedia(query).addEventListener("change", redraw);
    }
})();
