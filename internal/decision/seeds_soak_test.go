//go:build soak

package decision

// seeds is how many days are simulated.
const seeds = 1000
