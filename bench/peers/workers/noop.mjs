// The no-op task of a piscina thread.
export default (payload) => payload;
