//go:build !soak && !race

package agent

// seeds is how many days are simulated.
const seeds = 50
