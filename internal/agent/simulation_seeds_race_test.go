//go:build !soak && race

package agent

// seeds is how many days are simulated. Each takes several times as long with the race detector.
const seeds = 3
