// Package e2e proves on a real cluster, with nodes that really joined it, that the agent says of a node what the cluster says, finds the
// right node, tells a lost link from a sick node, and asks no more of the API server than it must. It needs root and the build tag e2e.
package e2e
