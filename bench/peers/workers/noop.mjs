// What a thread of piscina does: nothing.
export default (payload) => payload;
