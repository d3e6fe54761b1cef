// What a refusal of the API means for who looks at a page.

export interface Words {
  title: string;
  text: string;
}

/** The API's own reason first, unless it says nothing; then what can be done. */
export function failureWords(status: number, reason: string): Words {
  const asked = "It is asked again every few seconds.";
  switch (status) {
    case 0:
      return { title: reason, text: "What is shown is what was last known. " + asked };
    case 401:
    case 403:
      return { title: reason, text: "Your tags or permissions do not allow that. An administrator can change them: warrenctl set_user_tags, warrenctl set_permissions." };
    case 404:
      return { title: /^(Object )?Not Found$/i.test(reason) ? "There is no such thing." : reason, text: "It may have been deleted, or renamed; or the name in the address is wrong. " + asked };
    case 503:
      return { title: reason, text: "A node that is needed for the answer is down, or there is no majority. " + asked };
    default:
      return { title: reason, text: status >= 500 ? `The node failed to answer (${status}): its log says why. ` + asked : "" };
  }
}
